// Gemma 3's own tokenizer.json, unpacked by the build.
#pragma once

#include "daemon/tokenizer/tokenizer.h"

namespace gemmad::test {

/// Loaded once a test program.
inline const Tokenizer& real_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(GEMMAD_REAL_TOKENIZER);
  return tokenizer;
}

}  // namespace gemmad::test
