#include "daemon/tokenizer/clean_response.h"

#include "tests/support/catch.h"

using namespace gemmad;

TEST_CASE("Typographic quotes, dashes and spaces become ASCII", "[tokenizer]") {
  CHECK(clean_response("a\u2018b\u2019c\u2032d \u201Ce\u201D f\u2014g\u2013h\u2212i\u00A0j") ==
        "a'b'c'd \"e\" f-g-h-i j");
  CHECK(clean_response("a\u2033\u2010\u2026\u202F") == "a\u2033\u2010\u2026\u202F");
}

TEST_CASE("Everything before the first letter goes, the end stays", "[tokenizer]") {
  CHECK(clean_response("  \n1. **\"A dog\" runs.**  \n") == "A dog\" runs.**  \n");
  CHECK(clean_response("plain") == "plain");
  CHECK(clean_response("\u2014 \u00e9t\u00e9") == "\u00e9t\u00e9");
}

TEST_CASE("Letters are those of Unicode's five categories", "[tokenizer]") {
  for (const char* letter : {"A", "z", "\u01C5" /* Lt */, "\u02B0" /* Lm */, "\u05D0" /* Lo */, "\u732B",
                             "\U00010400", "\u00AA", "\u0E01", "\U00020000"}) {
    CAPTURE(letter);
    CHECK(clean_response(std::string("1 ") + letter) == letter);
  }
  // A digit, a letter-like number (Nl), a mark (Mn), symbols, an emoji and what is not assigned are none.
  for (const char* other :
       {"7", "\u2160", "\u0301", "$", "_", "\U0001F642", "\u24B6", "\U0001FFFE", "\uFFFD"}) {
    CAPTURE(other);
    CHECK(clean_response(std::string(other) + "a") == "a");
  }
}

TEST_CASE("Text without a letter stays, but for its quotes", "[tokenizer]") {
  CHECK(clean_response("").empty());
  CHECK(clean_response("\u201C12\u201D \u2013 34") == "\"12\" - 34");
}
