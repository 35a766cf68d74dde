// The error of everything in a model's directory but config.json.
#pragma once

#include <stdexcept>

namespace gemmad {

/// A file of a model is missing, damaged or does not fit the configuration. what() names the file and, where
/// there is one, the tensor, what was found and what was expected.
class ModelFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gemmad
