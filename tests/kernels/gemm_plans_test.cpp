#include "kernels/cuda/gemm_plans.h"

#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

const cuda::Product kProduct{{128, 3840, 8192, 3840, 8192, 16}, 0};
const cuda::Product kGeglu{{128, 3840, 30720, 3840, 30720, 16}, 64};

cuda::GemmPlan some_plan() {
  cuda::GemmPlan plan;
  for (std::size_t i = 0; i < std::size(plan.algorithm.data); ++i)
    plan.algorithm.data[i] = 0x0123456789abcdefull * (i + 1);
  return plan;
}

}  // namespace

TEST_CASE("Plans come back from their file as they were") {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "new" / "plans.txt";
  cuda::GemmPlans plans;
  plans.set(kProduct, some_plan());
  plans.set(kGeglu, {true, {}});
  CHECK_FALSE(plans.write(file));
  const cuda::GemmPlans read = cuda::GemmPlans::read(file);
  CHECK(read.size() == 2);
  REQUIRE(read.find(kProduct));
  CHECK_FALSE(read.find(kProduct)->is_hopper);
  for (std::size_t i = 0; i < std::size(some_plan().algorithm.data); ++i)
    CHECK(read.find(kProduct)->algorithm.data[i] == some_plan().algorithm.data[i]);
  REQUIRE(read.find(kGeglu));
  CHECK(read.find(kGeglu)->is_hopper);
}

TEST_CASE("Plans of a damaged file are passed over, the others kept") {
  const ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "plans.txt";
  cuda::GemmPlans plans;
  plans.set(kProduct, some_plan());
  CHECK_FALSE(plans.write(file));
  write_file(file, "nonsense\n1 2 3\n" + std::string(100'000, 'x') + "\n" + read_file(file) +
                       "1 2 3 4 5 6 0 other 0 0 0 0 0 0 0 0\n");
  const cuda::GemmPlans read = cuda::GemmPlans::read(file);
  CHECK(read.size() == 1);
  CHECK(read.find(kProduct));
}

TEST_CASE("There are no plans where there is no file, and what cannot be written is said") {
  const ScratchFolder folder;
  CHECK(cuda::GemmPlans::read(folder.path() / "missing").size() == 0);
  write_file(folder.path() / "file", "");
  const auto problem = cuda::GemmPlans().write(folder.path() / "file" / "plans.txt");
  REQUIRE(problem);
  CHECK(problem->find("plans.txt") != std::string::npos);
}

}  // namespace gemmad
