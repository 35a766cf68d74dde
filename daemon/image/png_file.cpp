#include "daemon/image/png_file.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>

#include "daemon/image/exif.h"

namespace gemmad {
namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kHeaderBytes = 33;  // signature and IHDR
constexpr png_uint_32 kMaxKeptChunks = 32;

/// Chunks that change nothing here are skipped unread: what is not unpacked cannot be a bomb.
constexpr char kSkippedChunks[] =
    "bKGD\0cHRM\0gAMA\0hIST\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0tRNS\0zTXt\0iTXt";
constexpr int kNumSkippedChunks = sizeof kSkippedChunks / 5;

/// Owns libpng's structures. libpng reports an error by a jump back into guarded(); what lies between is C
/// and functions of this class, none of which holds an object with a destructor.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file) : left_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &PngReader::on_error, &PngReader::on_warning);
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw ImageError(
          "libpng cannot be set up: out of memory, or built for another version than " PNG_LIBPNG_VER_STRING);
    }
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  /// Reads what is before the pixels. Returns the image without them.
  FileImage read_header(const ImageLimits& limits) {
    guarded([this, &limits] {
      png_set_read_fn(png_, this, &PngReader::on_read);
      png_set_user_limits(png_,
                          static_cast<png_uint_32>(std::min<std::int64_t>(limits.max_side, PNG_UINT_31_MAX)),
                          static_cast<png_uint_32>(std::min<std::int64_t>(limits.max_side, PNG_UINT_31_MAX)));
      png_set_chunk_malloc_max(png_, kMaxProfileBytes);
      png_set_chunk_cache_max(png_, kMaxKeptChunks);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER,
                                  reinterpret_cast<png_const_bytep>(kSkippedChunks), kNumSkippedChunks);
      png_read_info(png_, info_);
      ask_for_eight_bits();
      png_read_update_info(png_, info_);
    });
    FileImage image;
    image.height = png_get_image_height(png_, info_);
    image.width = png_get_image_width(png_, info_);
    image.channels = png_get_channels(png_, info_);
    if (png_get_rowbytes(png_, info_) != static_cast<std::size_t>(image.width * image.channels)) {
      throw ImageError("the PNG file has pixels of an unknown kind: save it as RGB of 8 bits");
    }
    return image;
  }

  /// Fills image.samples, which has its size already, and reads the file to its end.
  void read_pixels(FileImage& image) {
    png_bytep first_row = image.samples.data();
    const std::size_t row_bytes = static_cast<std::size_t>(image.width * image.channels);
    const std::int64_t height = image.height;
    guarded([this, first_row, row_bytes, height] {
      for (int pass = 0; pass < num_passes_; ++pass) {
        for (std::int64_t y = 0; y < height; ++y)
          png_read_row(png_, first_row + static_cast<std::size_t>(y) * row_bytes, nullptr);
      }
      png_read_end(png_, info_);
    });
  }

  /// Empty: none. As long as the reader lives.
  std::span<const std::byte> colour_profile() {
    png_charp name = nullptr;
    png_bytep profile = nullptr;
    png_uint_32 size = 0;
    int compression = 0;
    if (has_palette_ || png_get_iCCP(png_, info_, &name, &compression, &profile, &size) == 0) return {};
    return std::as_bytes(std::span(profile, size));
  }

  std::span<const std::byte> exif() {
    png_bytep bytes = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &bytes) == 0) return {};
    return std::as_bytes(std::span(bytes, size));
  }

 private:
  template <typename Step>
  void guarded(const Step& step) {
    if (setjmp(png_jmpbuf(png_)) != 0) {
      throw ImageError("the PNG file cannot be read: " + std::string(message_.data()) +
                       ": send it whole, or save it anew");
    }
    step();
  }

  void ask_for_eight_bits() {
    const int colour = png_get_color_type(png_, info_);
    const int depth = png_get_bit_depth(png_, info_);
    has_palette_ = colour == PNG_COLOR_TYPE_PALETTE;
    if (has_palette_) png_set_palette_to_rgb(png_);
    if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (depth == 16) png_set_strip_16(png_);
    if ((colour & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(png_);
    num_passes_ = png_set_interlace_handling(png_);
  }

  static void on_read(png_structp png, png_bytep to, std::size_t count) {
    auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > reader.left_.size()) png_error(png, "it ends early");
    std::memcpy(to, reader.left_.data(), count);
    reader.left_ = reader.left_.subspan(count);
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(reader.message_.data(), reader.message_.size(), "%s", message);
    png_longjmp(png, 1);
  }

  static void on_warning(png_structp, png_const_charp) {}

  std::span<const std::byte> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int num_passes_ = 1;
  bool has_palette_ = false;
  std::array<char, 200> message_{};
};

std::int64_t read_u32(std::span<const std::byte> bytes, std::size_t at) {
  return png_get_uint_32(reinterpret_cast<png_const_bytep>(bytes.data()) + at);
}

}  // namespace

bool is_png(std::span<const std::byte> file) {
  return file.size() >= kSignatureBytes &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(file.data()), 0, kSignatureBytes) == 0;
}

FileImage decode_png(std::span<const std::byte> file, const ImageLimits& limits) {
  if (file.size() < kHeaderBytes) {
    throw ImageError("the PNG file ends within its header, after " + std::to_string(file.size()) +
                     " bytes: send it whole");
  }
  check_size(read_u32(file, 20), read_u32(file, 16), limits);  // libpng would not say which size it refuses

  PngReader reader(file);
  FileImage image = reader.read_header(limits);
  check_size(image.height, image.width, limits);
  image.samples.resize(static_cast<std::size_t>(image.height * image.width * image.channels));
  reader.read_pixels(image);
  const auto profile = reader.colour_profile();
  image.colour_profile.assign(profile.begin(), profile.end());
  image.orientation = exif_orientation(reader.exif());
  return image;
}

}  // namespace gemmad
