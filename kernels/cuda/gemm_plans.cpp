#include "kernels/cuda/gemm_plans.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

namespace gemmad::cuda {

namespace {

constexpr std::size_t kMaxLines = 100'000;
constexpr std::size_t kWords = sizeof(LtMatmul::Algorithm) / sizeof(std::uint64_t);

// What a product ends with, by name: the last words of a line, as many as there are of it.
constexpr std::pair<const char*, bool ProductEnd::*> kEnds[] = {{"f32", &ProductEnd::f32},
                                                                {"bias", &ProductEnd::bias},
                                                                {"gelu", &ProductEnd::gelu},
                                                                {"add", &ProductEnd::add}};

std::optional<std::pair<Product, GemmPlan>> parse_line(const std::string& line) {
  std::istringstream words(line);
  Product product;
  ProductShape& shape = product.shape;
  GemmPlan plan;
  std::string kernel;
  words >> shape.rows >> shape.inputs >> shape.outputs >> shape.w_stride >> shape.y_stride >>
      shape.alignment_bytes >> product.geglu_block >> kernel;
  for (std::size_t i = 0; i < kWords; ++i)
    words >> std::hex >> plan.algorithm.data[i];
  if (!words || !(kernel == "hopper" || kernel == "cublaslt")) return std::nullopt;
  plan.is_hopper = kernel == "hopper";
  for (std::string word; words >> word;) {
    const auto end = std::ranges::find(kEnds, word, [](const auto& known) { return known.first; });
    if (end == std::end(kEnds)) return std::nullopt;
    shape.end.*end->second = true;
  }
  return std::pair(product, plan);
}

std::string line_of(const Product& product, const GemmPlan& plan) {
  const ProductShape& shape = product.shape;
  std::ostringstream line;
  line << shape.rows << ' ' << shape.inputs << ' ' << shape.outputs << ' ' << shape.w_stride << ' '
       << shape.y_stride << ' ' << shape.alignment_bytes << ' ' << product.geglu_block << ' '
       << (plan.is_hopper ? "hopper" : "cublaslt") << std::hex;
  for (std::size_t i = 0; i < kWords; ++i)
    line << ' ' << plan.algorithm.data[i];
  for (const auto& [name, member] : kEnds) {
    if (shape.end.*member) line << ' ' << name;
  }
  return line.str();
}

}  // namespace

GemmPlans GemmPlans::read(const std::filesystem::path& file) {
  GemmPlans plans;
  std::ifstream stream(file);
  std::string line;
  for (std::size_t i = 0; i < kMaxLines && std::getline(stream, line); ++i) {
    if (const auto entry = parse_line(line)) plans.plans_.insert(*entry);
  }
  return plans;
}

std::optional<std::string> GemmPlans::write(const std::filesystem::path& file) const {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  // Several ranks may write at once: each its own file, and the last one stays.
  std::filesystem::path part = file;
  part += "." + std::to_string(::getpid());
  {
    std::ofstream stream(part);
    for (const auto& [product, plan] : plans_)
      stream << line_of(product, plan) << '\n';
    stream.close();
    if (!stream) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(part, file, error);
  if (!error) return std::nullopt;
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  return "write " + file.string() + ": " + error.message();
}

std::optional<GemmPlan> GemmPlans::find(const Product& product) const {
  const auto found = plans_.find(product);
  return found == plans_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace gemmad::cuda
