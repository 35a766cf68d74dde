#include "daemon/tokenizer/clean_response.h"

#include <utf8proc.h>

#include "daemon/tokenizer/utf8.h"

namespace gemmad {
namespace {

char32_t plain(char32_t c) {
  switch (c) {
    case U'\u2018':
    case U'\u2019':
    case U'\u2032':
      return '\'';
    case U'\u201C':
    case U'\u201D':
      return '"';
    case U'\u2014':
    case U'\u2013':
    case U'\u2212':
      return '-';
    case U'\u00A0':
      return ' ';
    default:
      return c;
  }
}

bool is_letter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string clean_response(std::string_view valid_utf8) {
  std::string text;
  text.reserve(valid_utf8.size());
  bool has_letter = false;
  for (std::size_t position = 0; position < valid_utf8.size();) {
    const char32_t c = plain(read_code_point(valid_utf8, position));
    if (!has_letter && is_letter(c)) {
      has_letter = true;
      text.clear();
    }
    append_utf8(text, c);
  }
  return text;
}

}  // namespace gemmad
