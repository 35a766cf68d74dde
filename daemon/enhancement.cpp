#include "daemon/enhancement.h"

namespace gemmad {

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd:
      return "end";
    case StopReason::kLength:
      return "length";
    case StopReason::kRepetition:
      return "repetition";
  }
  return "unknown";
}

}  // namespace gemmad
