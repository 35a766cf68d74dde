// Which kernel computes which product, as measured, and its file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kernels/cuda/lt_matmul.h"

namespace gemmad::cuda {

struct Product {
  ProductShape shape;
  std::int64_t geglu_block = 0;  // 0: a plain one

  auto operator<=>(const Product&) const = default;
};

/// How a product is computed: by cuBLASLt's `algorithm`, or by the kernel in hopper_gemm.h.
struct GemmPlan {
  bool is_hopper = false;
  LtMatmul::Algorithm algorithm{};
};

/// Plans by product. The file is text, a line a plan; algorithms are the library's own 64 bytes, so a file is
/// good for one device and one version of the library, which its name says.
class GemmPlans {
 public:
  /// Reads `file` where there is one. Lines that are none are passed over: what is lost is measured again.
  static GemmPlans read(const std::filesystem::path& file);
  /// Replaces the file as a whole. Returns what went wrong, if anything.
  std::optional<std::string> write(const std::filesystem::path& file) const;

  /// Takes those of `others` that are not here.
  void add(const GemmPlans& others) { plans_.insert(others.plans_.begin(), others.plans_.end()); }
  std::optional<GemmPlan> find(const Product& product) const;
  void set(const Product& product, const GemmPlan& plan) { plans_[product] = plan; }
  std::size_t size() const { return plans_.size(); }

 private:
  std::map<Product, GemmPlan> plans_;
};

}  // namespace gemmad::cuda
