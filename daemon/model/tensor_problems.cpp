#include "daemon/model/tensor_problems.h"

#include <algorithm>
#include <utility>

#include "config/config_error.h"
#include "kernels/base/file_descriptor.h"

namespace gemmad {
namespace {

constexpr std::size_t kMaxNamedProblems = 10;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

bool is_weight_type(const SafetensorsDType& dtype) {
  return dtype.dtype == DType::kBF16 || dtype.dtype == DType::kF16 || dtype.dtype == DType::kF32;
}

}  // namespace

std::shared_ptr<const MappedFile> map_model_file(const std::filesystem::path& path) {
  try {
    return std::make_shared<const MappedFile>(path);
  } catch (const SystemError& error) {
    throw ModelFileError(error.what());
  }
}

std::string quoted_name(const std::string& name) {
  return std::string("'").append(printable(name, 200)).append("'");
}

void TensorProblems::add(std::string problem) {
  if (named_.size() < kMaxNamedProblems) named_.push_back(std::move(problem));
  ++count_;
}

bool TensorProblems::check_shape(const SafetensorsEntry& entry, const Shape& expected) {
  if (std::equal(entry.shape.begin(), entry.shape.end(), expected.extents().begin(),
                 expected.extents().end()))
    return true;
  add(quoted_name(entry.name) + " has shape " + shape_text(entry.shape) + ", expected " + expected.text());
  return false;
}

bool TensorProblems::check_weight(const SafetensorsEntry& entry, const Shape& expected) {
  if (!check_shape(entry, expected)) return false;
  if (is_weight_type(entry.dtype)) return true;
  add(quoted_name(entry.name) + " has dtype " + std::string(entry.dtype.name) +
      ", expected BF16, F16 or F32");
  return false;
}

void TensorProblems::add_missing(const std::string& name, const Shape& expected) {
  add("missing '" + name + "' " + expected.text());
}

void TensorProblems::throw_if_any(const std::string& subject, const std::string& config) const {
  if (count_ == 0) return;
  std::string text = subject + ": " + std::to_string(count_) +
                     (count_ == 1 ? " tensor does not fit " : " tensors do not fit ") + config + ": ";
  for (std::size_t i = 0; i < named_.size(); ++i)
    text += (i > 0 ? "; " : "") + named_[i];
  if (count_ > named_.size()) text += "; and " + std::to_string(count_ - named_.size()) + " more";
  throw ModelFileError(text);
}

}  // namespace gemmad
