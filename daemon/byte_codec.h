// Writes and reads little records as bytes, for messages between ranks of one build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace gemmad {

/// The bytes are not what their writer wrote.
class CodecError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Appends values to a byte string; sequences are preceded by their length.
class ByteWriter {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void value(const T& v) { append(&v, sizeof v); }
  void text(const std::string& s) { array(std::span<const char>(s)); }
  template <typename T>
  void array(std::span<const T> items) {
    value(static_cast<std::uint64_t>(items.size()));
    append(items.data(), items.size_bytes());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t size) {
    if (size == 0) return;
    const std::size_t end = bytes_.size();
    bytes_.resize(end + size);
    std::memcpy(bytes_.data() + end, data, size);
  }

  std::vector<std::byte> bytes_;
};

/// Takes values back in the order in which they were written. Does not own the bytes. Throws CodecError past
/// the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T value() {
    T v;
    std::memcpy(&v, take(sizeof v), sizeof v);
    return v;
  }
  std::string text() {
    const std::vector<char> chars = array<char>();
    return {chars.begin(), chars.end()};
  }
  template <typename T>
  std::vector<T> array() {
    const std::uint64_t count = value<std::uint64_t>();
    if (count > bytes_.size() / sizeof(T)) throw CodecError("a sequence longer than its message");
    std::vector<T> items(count);
    const std::size_t size = count * sizeof(T);
    if (size > 0) std::memcpy(items.data(), take(size), size);
    return items;
  }
  /// A number of items that each take at least one byte of what is left.
  std::uint64_t count() {
    const std::uint64_t n = value<std::uint64_t>();
    if (n > bytes_.size()) throw CodecError("more items than the message has bytes");
    return n;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  const std::byte* take(std::size_t size) {
    if (size > bytes_.size()) throw CodecError("a message that ends early");
    const std::byte* start = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return start;
  }

  std::span<const std::byte> bytes_;
};

}  // namespace gemmad
