#include "kernels/base/memory.h"

#include <stdexcept>
#include <string>

namespace gemmad {

TensorView Buffer::view(DType dtype, const Shape& shape, std::size_t offset_bytes) const {
  const TensorView tensor{nullptr, dtype, shape};
  if (offset_bytes > size_bytes_ || tensor.size_bytes() > size_bytes_ - offset_bytes) {
    throw std::out_of_range("a tensor " + shape.text() + " of " + std::string(name(dtype)) + " at byte " +
                            std::to_string(offset_bytes) + " does not fit a buffer of " +
                            std::to_string(size_bytes_) + " bytes");
  }
  return {static_cast<std::byte*>(data_) + offset_bytes, dtype, shape};
}

}  // namespace gemmad
