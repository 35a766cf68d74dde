// Builds one small JSON value from the events of a parser. Internal to this folder: brings in nlohmann/json.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace gemmad {

class SmallTree {
 public:
  /// How many containers are open.
  std::size_t depth() const { return open_.size(); }

  /// Values put since the last take.
  std::size_t num_values() const { return num_values_; }

  /// Opens an object or array: as the root if none is open, else inside the innermost.
  void start(nlohmann::json empty_container) { open_.push_back(put(std::move(empty_container))); }
  void end() { open_.pop_back(); }

  /// Names the next value of the innermost object. False when it has that key already.
  bool key(const std::string& name) {
    key_ = name;
    return !open_.back()->contains(name);
  }

  /// Adds a value to the innermost container. Returns where it lies until the container gets its next value.
  nlohmann::json* put(nlohmann::json value) {
    ++num_values_;
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    nlohmann::json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  /// Hands out the finished value; depth() must be 0.
  nlohmann::json take() {
    num_values_ = 0;
    return std::exchange(root_, nullptr);
  }

 private:
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;
  std::string key_;
  std::size_t num_values_ = 0;
};

}  // namespace gemmad
