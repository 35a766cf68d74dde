// What a rank says to a result that it is to find space for.
#pragma once

#include <cstdint>
#include <string>

#include "comm/result_store.h"

namespace gemmad {

/// How a rank stands to a job, mildest first: the worst over the ranks counts for all.
enum class Verdict : std::uint8_t { kReserved, kNoSpace, kNameInUse, kTooLarge, kInternal };

Verdict verdict_of(ReserveVerdict reserved);

/// What clients and readers of a job that was not reserved are told. `size_bytes` of its block.
JobFailure failure_of(Verdict verdict, const std::string& name, std::uint64_t size_bytes,
                      std::uint64_t segment_bytes);

}  // namespace gemmad
