#include "comm/nccl_collectives.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace gemmad {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// "ranks 0, 1".
std::string names_of(const std::vector<int>& ranks) {
  std::string text = "ranks";
  for (std::size_t member = 0; member < ranks.size(); ++member)
    text += (member == 0 ? " " : ", ") + std::to_string(ranks[member]);
  return text;
}

ncclDataType_t summed_type(DType dtype) {
  if (dtype == DType::kF32) return ncclFloat32;
  if (dtype == DType::kBF16) return ncclBfloat16;
  throw std::invalid_argument("all_reduce sums F32 and BF16, not " + std::string(name(dtype)));
}

/// Calls that wait for other members, or for the device, on a thread of their own, which is left behind when
/// they do not come back within `timeout`. Nothing then. `call` must own what it needs.
template <typename Call>
std::optional<ncclResult_t> with_patience(milliseconds timeout, Call call) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  std::promise<ncclResult_t> promise;
  std::future<ncclResult_t> result = promise.get_future();
  std::thread([device, call, promise = std::move(promise)]() mutable {
    promise.set_value(cudaSetDevice(device) == cudaSuccess ? call() : ncclUnhandledCudaError);
  }).detach();
  if (result.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return result.get();
}

/// NCCL's abort frees device memory, which waits for the device, and that may be stuck in a kernel that is
/// not NCCL's.
void abort_communicator(ncclComm_t communicator) noexcept {
  constexpr milliseconds kPatience{2'000};
  try {
    with_patience(kPatience, [communicator] { return ncclCommAbort(communicator); });
  } catch (const std::exception&) {
    // No thread to be had: the communicator stays as it is.
  }
}

/// Pauses between looks at something: a short while none, for the sake of latency, then naps, so that ranks
/// which share a core get on.
class Naps {
 public:
  explicit Naps(milliseconds timeout) : timeout_(timeout) {}

  bool timed_out() const { return Clock::now() - start_ > timeout_; }
  void take() const {
    if (Clock::now() - start_ < milliseconds(20)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(microseconds(20));
    }
  }

 private:
  milliseconds timeout_;
  Clock::time_point start_ = Clock::now();
};

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(Bootstrap& bootstrap, std::vector<int> ranks, milliseconds timeout,
                  const NcclOptions& options)
      : ranks_(std::move(ranks)), timeout_(timeout) {
    const auto own = std::find(ranks_.begin(), ranks_.end(), bootstrap.info().rank);
    if (own == ranks_.end()) throw std::invalid_argument("a group that this rank is not a member of");
    connect(shared_id(bootstrap), static_cast<int>(own - ranks_.begin()), options);
  }

  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  ~NcclCollectives() override {
    if (communicator_ == nullptr) return;
    try {
      // It waits for the others to do the same, who may be lost: the process must still end within seconds.
      constexpr milliseconds kPatience{3'000};
      with_patience(std::min(timeout_, kPatience),
                    [communicator = communicator_] { return ncclCommDestroy(communicator); });
    } catch (const std::exception&) {
      // No thread to be had: it stays.
    }
  }

  void broadcast(TensorView tensor, int root, Stream stream) override {
    check_member(root);
    if (tensor.size_bytes() == 0) return;
    finish_call(ncclBroadcast(tensor.data, tensor.data, tensor.size_bytes(), ncclUint8, root, usable(),
                              handle(stream)),
                "ncclBroadcast");
  }

  void all_reduce(TensorView tensor, Stream stream) override {
    const ncclDataType_t type = summed_type(tensor.dtype);
    const auto count = static_cast<std::size_t>(tensor.shape.num_elements());
    if (count == 0) return;
    finish_call(ncclAllReduce(tensor.data, tensor.data, count, type, ncclSum, usable(), handle(stream)),
                "ncclAllReduce");
  }

  void all_gather(ConstTensorView mine, TensorView all, Stream stream) override {
    const std::size_t size = mine.size_bytes();
    if (all.dtype != mine.dtype || all.size_bytes() != size * ranks_.size())
      throw std::invalid_argument("all_gather needs room for what each member has");
    if (size == 0) return;
    finish_call(ncclAllGather(mine.data, all.data, size, ncclUint8, usable(), handle(stream)),
                "ncclAllGather");
  }

  void send(ConstTensorView tensor, int to, Stream stream) override {
    check_member(to);
    if (tensor.size_bytes() == 0) return;
    finish_call(ncclSend(tensor.data, tensor.size_bytes(), ncclUint8, to, usable(), handle(stream)),
                "ncclSend");
  }

  void receive(TensorView tensor, int from, Stream stream) override {
    check_member(from);
    if (tensor.size_bytes() == 0) return;
    finish_call(ncclRecv(tensor.data, tensor.size_bytes(), ncclUint8, from, usable(), handle(stream)),
                "ncclRecv");
  }

  void begin_group() override {
    usable();
    const ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) fail("ncclGroupStart", reason(result));
    in_group_ = true;
  }

  void end_group() override {
    in_group_ = false;
    finish(ncclGroupEnd(), "ncclGroupEnd");
  }

  void wait(Stream stream) override {
    constexpr milliseconds kLookAtGroup{1};
    usable();
    const Naps naps(timeout_);
    auto next_look = Clock::now() + kLookAtGroup;
    for (;;) {
      const cudaError_t result = cudaStreamQuery(handle(stream));
      if (result == cudaSuccess) return;
      if (result != cudaErrorNotReady) fail("work on the GPU", cudaGetErrorString(result));
      // "Not ready" must not stay behind as this thread's last error.
      cudaGetLastError();
      if (Clock::now() >= next_look) {
        next_look = Clock::now() + kLookAtGroup;
        look_at_group();
        if (naps.timed_out()) fail("work on the GPU", late());
      }
      naps.take();
    }
  }

 private:
  static cudaStream_t handle(Stream stream) { return static_cast<cudaStream_t>(stream.handle()); }

  /// The first member makes the id that NCCL lets members find each other by.
  ncclUniqueId shared_id(Bootstrap& bootstrap) const {
    ncclUniqueId id{};
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    if (bootstrap.info().rank == ranks_.front()) {
      const ncclResult_t result = ncclGetUniqueId(&id);
      if (result != ncclSuccess) throw BootstrapError(text_of("ncclGetUniqueId", reason(result)));
      for (std::size_t member = 1; member < ranks_.size(); ++member)
        outgoing.push_back({ranks_[member], std::as_bytes(std::span(&id, 1))});
    } else {
      incoming.push_back({ranks_.front(), std::as_writable_bytes(std::span(&id, 1))});
    }
    bootstrap.exchange(outgoing, incoming, timeout_);
    return id;
  }

  void connect(const ncclUniqueId& id, int own, const NcclOptions& options) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
    // Not in NCCL's own way of not blocking: that starts a thread for every call of the group (35 us each).
    const auto made = std::make_shared<ncclComm_t>(nullptr);
    const auto result =
        with_patience(timeout_, [made, config, id, own, size = static_cast<int>(ranks_.size())]() mutable {
          return ncclCommInitRankConfig(made.get(), size, id, own, &config);
        });
    if (!result) throw BootstrapError(text_of("ncclCommInitRankConfig", late()));
    if (*result != ncclSuccess) throw BootstrapError(text_of("ncclCommInitRankConfig", reason(*result)));
    communicator_ = *made;
  }

  void check_member(int member) const {
    if (member < 0 || static_cast<std::size_t>(member) >= ranks_.size())
      throw std::invalid_argument("a group of " + std::to_string(ranks_.size()) + " has no member " +
                                  std::to_string(member));
  }

  ncclComm_t usable() const {
    if (communicator_ == nullptr)
      throw BootstrapError("the group of " + names_of(ranks_) + " was aborted after an error");
    return communicator_;
  }

  /// Within a group of calls nothing has begun that could be waited for.
  void finish_call(ncclResult_t result, const char* call) {
    if (!in_group_) {
      finish(result, call);
    } else if (result != ncclSuccess && result != ncclInProgress) {
      fail(call, reason(result));
    }
  }

  /// Waits until NCCL has done `call`, which returned `result`: put it on the stream, or made or ended the
  /// communicator.
  void finish(ncclResult_t result, const char* call) {
    const Naps naps(timeout_);
    while (result == ncclInProgress) {
      if (naps.timed_out()) fail(call, late());
      naps.take();
      const ncclResult_t asked = ncclCommGetAsyncError(usable(), &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result != ncclSuccess) fail(call, reason(result));
  }

  void look_at_group() {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
    if (asked != ncclSuccess) fail("ncclCommGetAsyncError", reason(asked));
    if (state != ncclSuccess && state != ncclInProgress) fail("work of the group", reason(state));
  }

  std::string late() const {
    return "not done within " + std::to_string(timeout_.count()) + " ms; a member hangs or died";
  }

  std::string reason(ncclResult_t result) const {
    const char* const last = ncclGetLastError(communicator_);
    std::string text = ncclGetErrorString(result);
    if (last != nullptr && *last != '\0') text += std::string(", ") + last;
    return text;
  }

  std::string text_of(const std::string& what, const std::string& why) const {
    return what + " among " + names_of(ranks_) + ": " + why;
  }

  [[noreturn]] void fail(const std::string& what, const std::string& why) {
    if (std::exchange(in_group_, false)) ncclGroupEnd();
    if (communicator_ != nullptr) abort_communicator(std::exchange(communicator_, nullptr));
    throw BootstrapError(text_of(what, why));
  }

  std::vector<int> ranks_;
  milliseconds timeout_;
  ncclComm_t communicator_ = nullptr;  // null once aborted
  bool in_group_ = false;
};

}  // namespace

Transport nccl_transport(Bootstrap& bootstrap, const NcclOptions& options) {
  // NVLink multicast off: it takes resources of the switches that a host's users share, and a program that
  // uses them can disturb the others.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  return {"NCCL", [&bootstrap, options](std::vector<int> ranks, milliseconds timeout) {
            return std::make_unique<NcclCollectives>(bootstrap, std::move(ranks), timeout, options);
          }};
}

}  // namespace gemmad
