#include "daemon/verdict.h"

namespace gemmad {

Verdict verdict_of(ReserveVerdict reserved) {
  switch (reserved) {
    case ReserveVerdict::kReserved:
      return Verdict::kReserved;
    case ReserveVerdict::kNoSpace:
      return Verdict::kNoSpace;
    case ReserveVerdict::kTooLarge:
      return Verdict::kTooLarge;
    case ReserveVerdict::kNameInUse:
      return Verdict::kNameInUse;
  }
  return Verdict::kInternal;
}

JobFailure failure_of(Verdict verdict, const std::string& name, std::uint64_t size_bytes,
                      std::uint64_t segment_bytes) {
  const std::string sizes =
      std::to_string(size_bytes) + " bytes in segments of " + std::to_string(segment_bytes);
  switch (verdict) {
    case Verdict::kNoSpace:
      return {
          "buffers_exhausted",
          "the space that this result needs holds others that are leased, or that nobody has come for yet: " +
              sizes + "; release or read results, shorten result_ttl_ms, or raise segment_mib"};
    case Verdict::kTooLarge:
      return {"result_too_large", "this result can never fit: " + sizes +
                                      "; ask for fewer prompts or layers, or raise segment_mib"};
    case Verdict::kNameInUse:
      return {"name_in_use", "a result named '" + name +
                                 "' still waits for readers, on one rank at least; it goes when they have "
                                 "come, or after result_ttl_ms"};
    case Verdict::kReserved:
    case Verdict::kInternal:
      break;
  }
  return {"internal", "a rank could not reserve space"};
}

}  // namespace gemmad
