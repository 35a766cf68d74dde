#include "daemon/model/safetensors_header.h"

#include <string>

#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

SafetensorsHeader parse(const std::string& bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes.data(), bytes.size())), "x.safetensors");
}

// "accepted", or why not.
std::string refusal(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const ModelFileError& error) {
    return error.what();
  }
  return "accepted";
}

bool refused(const std::string& bytes, const std::string& reason) {
  const std::string text = refusal(bytes);
  INFO(text);
  CHECK(text.starts_with("x.safetensors: "));
  return text.find(reason) != std::string::npos;
}

std::string with_length(std::uint64_t header_size, const std::string& rest) {
  std::string bytes = safetensors_bytes("", "");
  for (int i = 0; i < 8; ++i)
    bytes[static_cast<std::size_t>(i)] = static_cast<char>(header_size >> (8 * i) & 0xff);
  return bytes + rest;
}

// One tensor "a" with these fields and `data_bytes` of data.
std::string one(const std::string& fields, std::size_t data_bytes) {
  return safetensors_bytes("{\"a\":{" + fields + "}}", std::string(data_bytes, '\0'));
}

// Two U8 tensors of these offsets in ten bytes.
std::string two(const std::string& first, const std::string& second, const std::string& first_size,
                const std::string& second_size) {
  return safetensors_bytes(R"({"a":{"dtype":"U8","shape":[)" + first_size + R"(],"data_offsets":[)" + first +
                               R"(]},"b":{"dtype":"U8","shape":[)" + second_size + R"(],"data_offsets":[)" +
                               second + "]}}",
                           std::string(10, '\0'));
}

}  // namespace

TEST_CASE("A header gives names, types, shapes and places, by offset") {
  const SafetensorsHeader header = parse(safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  )",
      std::string(16, '\0')));
  REQUIRE(header.tensors.size() == 2);
  CHECK(header.tensors[0].name == "a");
  CHECK(header.tensors[0].shape.empty());
  CHECK(header.tensors[0].dtype.dtype == DType::kF32);
  CHECK(header.tensors[1].name == "b");
  CHECK(header.tensors[1].shape == std::vector<std::int64_t>{2, 3});
  CHECK(header.tensors[1].dtype.name == "BF16");
  CHECK(header.tensors[1].end - header.tensors[1].begin == 12);
}

TEST_CASE("A header's metadata are kept, wherever they stand") {
  using Metadata = decltype(SafetensorsHeader::metadata);
  CHECK(parse(safetensors_bytes(R"({"__metadata__":{"format":"pt","config":"{\"a\": 1}"}})", "")).metadata ==
        Metadata{{"format", "pt"}, {"config", R"({"a": 1})"}});
  CHECK(parse(safetensors_bytes(
                  R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"__metadata__":{"k":""}})", ""))
            .metadata == Metadata{{"k", ""}});
  CHECK(parse(safetensors_bytes(R"({"__metadata__":{}})", "")).metadata.empty());
  CHECK(parse(safetensors_bytes("{}", "")).metadata.empty());
}

TEST_CASE("A header without tensors, and tensors without elements, are accepted") {
  CHECK(refusal(safetensors_bytes("{}", "")) == "accepted");
  CHECK(refusal(one(R"("dtype":"F32","shape":[0,5],"data_offsets":[0,0])", 0)) == "accepted");
  CHECK(refusal(one(R"("dtype":"F32","shape":[99999999999,0],"data_offsets":[0,0])", 0)) == "accepted");
}

TEST_CASE("Types that are only skipped are known with their sizes") {
  CHECK(refusal(one(R"("dtype":"I64","shape":[2],"data_offsets":[0,16])", 16)) == "accepted");
  CHECK(refusal(one(R"("dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3])", 3)) == "accepted");
  CHECK(refusal(one(R"("dtype":"F4","shape":[4],"data_offsets":[0,2])", 2)) == "accepted");
  CHECK(refused(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2), "whole bytes"));
  CHECK_FALSE(
      parse(one(R"("dtype":"I64","shape":[1],"data_offsets":[0,8])", 8)).tensors[0].dtype.dtype.has_value());
}

TEST_CASE("What is no safetensors file is named for what it is") {
  CHECK(refused("", "empty (0 bytes)"));
  CHECK(refused("version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 5\n", "git-LFS pointer"));
  CHECK(refused("<!DOCTYPE html><html><body>Log in</body></html>", "HTML page"));
  CHECK(refused("\n\n  <html lang=\"en\">", "HTML page"));
  CHECK(refused("1234567", "too few"));
}

TEST_CASE("RejectsHeaderLargerThanTheFileOrTheLimit") {
  CHECK(refused(with_length(100, "{}"), "cut short"));
  CHECK(refused(with_length(3, "{}"), "cut short"));
  CHECK(refused(with_length(kMaxSafetensorsHeaderBytes + 1, "{}"), "above the limit"));
  CHECK(refused(with_length(std::uint64_t{1} << 63, "{}"), "above the limit"));
  CHECK(refused(with_length(~std::uint64_t{0}, "{}"), "above the limit"));
}

TEST_CASE("Headers that are not JSON, or of another form, are refused") {
  const std::string header =
      GENERATE("", "{", "{}{}", "[]", "null", "3", "\"a\"", "{\"a\":3}", "{\"a\":null}", "{\"a\":{}}",
               "{\"a\":[]}", "{\"a\":{\"dtype\":\"U8\"}}", R"({"a":{"dtype":"U8","shape":[0]}})",
               R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1}})",
               R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":0,"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":[{}],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":["0"],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":[0.5],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})",
               R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})",
               R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[-1,0]}})",
               R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"U8","shape":[0,0,0,0,0,0,0,0,0],"data_offsets":[0,0]}})",
               R"({"__metadata__":{"a":1}})", R"({"__metadata__":{"a":{}}})", R"({"__metadata__":"a"})",
               "{\"\xff\":{}}", "// {}\n{}");
  CAPTURE(header);
  CHECK(refusal(safetensors_bytes(header, "")) != "accepted");
}

TEST_CASE("Nesting without end is refused without recursion") {
  std::string header = "{\"a\":";
  header += std::string(1 << 20, '[');
  CHECK(refusal(safetensors_bytes(header, "")) != "accepted");
  std::string objects;
  for (int i = 0; i < 100000; ++i)
    objects += "{\"a\":";
  CHECK(refusal(safetensors_bytes(objects, "")) != "accepted");
}

TEST_CASE("Repeated names and fields are refused") {
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  CHECK(refused(safetensors_bytes("{\"a\":" + tensor + ",\"a\":" + tensor + "}", ""), "'a' is there twice"));
  CHECK(refused(safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", ""), "twice"));
  CHECK(refused(safetensors_bytes(R"({"__metadata__":{"k":"1","k":"2"}})", ""), "'k' is there twice"));
  CHECK(refused(one(R"("dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0])", 0), "'dtype' twice"));
}

TEST_CASE("Wrong types and sizes are refused with the tensor's name") {
  CHECK(refused(one(R"("dtype":"F99","shape":[1],"data_offsets":[0,4])", 4),
                "tensor 'a': unknown dtype 'F99'"));
  CHECK(refused(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4), "need 8 bytes"));
  CHECK(refused(one(R"("dtype":"BF16","shape":[1],"data_offsets":[0,4])", 4), "need 2 bytes"));
}

TEST_CASE("Shapes that overflow are refused") {
  const std::string shape = GENERATE("4294967296,4294967296", "9223372036854775807", "18446744073709551615",
                                     "1048576,1048576,1048576,1048576", "3,6148914691236517206");
  CAPTURE(shape);
  CHECK(refused(one("\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[0,0]", 0), "overflows"));
}

TEST_CASE("Offsets outside the file, overlaps, holes and trailing bytes are refused") {
  CHECK(refusal(two("0,4", "4,10", "4", "6")) == "accepted");
  CHECK(refused(two("0,4", "4,11", "4", "7"), "cut short"));
  CHECK(refused(two("4,0", "4,10", "4", "6"), "outside"));
  CHECK(refused(two("0,4", "18446744073709551615,18446744073709551615", "4", "0"), "outside"));
  CHECK(refused(two("0,5", "4,10", "5", "6"), "overlaps"));
  CHECK(refused(two("0,10", "0,10", "10", "10"), "overlaps"));
  CHECK(refused(two("0,4", "5,10", "4", "5"), "1 bytes before tensor 'b'"));
  CHECK(refused(two("1,4", "4,10", "3", "6"), "belong to no tensor"));
  CHECK(refused(two("0,4", "4,9", "4", "5"), "1 trailing bytes"));
}

}  // namespace gemmad
