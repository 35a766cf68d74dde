#include "daemon/image/jpeg_file.h"

// jpeglib.h needs these before it.
#include <cstddef>
#include <cstdio>

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "daemon/image/exif.h"

namespace gemmad {
namespace {

constexpr int kMaxScans = 50;  // encoders write about 10; each is a pass over the whole image
constexpr unsigned kMaxMarkerBytes = 0xFFFF;
constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr int kProfileMarker = JPEG_APP0 + 2;
// Coefficients of a progressive file: 2 bytes, at most 4 components, and edges rounded up to blocks.
constexpr std::int64_t kCoefficientBytes = 8;
constexpr std::int64_t kEdgeBytes = 40 << 20;

struct Freer {
  void operator()(JOCTET* bytes) const { std::free(bytes); }
};

/// Owns libjpeg's structure. libjpeg reports an error by a jump back into guarded(); what lies between is C
/// and functions of this class, none of which holds an object with a destructor.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> file) : file_(file) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { of(info).leave(); };
    errors_.emit_message = [](j_common_ptr info, int level) { of(info).on_message(level); };
    info_.client_data = this;
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
      ERREXIT(info, JERR_INPUT_EOF);
      return FALSE;
    };
    source_.skip_input_data = &JpegReader::on_skip;
    source_.resync_to_restart = &jpeg_resync_to_restart;
    progress_.progress_monitor = [](j_common_ptr info) { of(info).on_progress(); };
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  /// Reads what is before the pixels. Returns the image without them.
  FileImage read_header(const ImageLimits& limits) {
    guarded([this] {
      jpeg_create_decompress(&info_);
      info_.client_data = this;
      info_.src = &source_;
      source_.next_input_byte = reinterpret_cast<const JOCTET*>(file_.data());
      source_.bytes_in_buffer = file_.size();
      info_.progress = &progress_;
      jpeg_save_markers(&info_, kExifMarker, kMaxMarkerBytes);
      jpeg_save_markers(&info_, kProfileMarker, kMaxMarkerBytes);
      jpeg_read_header(&info_, TRUE);
    });
    FileImage image;
    image.height = info_.image_height;
    image.width = info_.image_width;
    check_size(image.height, image.width, limits);
    if (info_.data_precision != 8) {
      throw ImageError("the JPEG file has " + std::to_string(info_.data_precision) +
                       " bits a sample: save it with 8");
    }
    image.channels = choose_channels();
    return image;
  }

  /// Fills image.samples, which has its size already, and reads the file to its end.
  void read_pixels(FileImage& image) {
    JSAMPROW first_row = image.samples.data();
    const std::size_t row_bytes = static_cast<std::size_t>(image.width * image.channels);
    const std::int64_t memory = image.height * image.width * kCoefficientBytes + kEdgeBytes;
    guarded([this, first_row, row_bytes, memory] {
      info_.mem->max_memory_to_use = static_cast<long>(memory);
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        JSAMPROW row = first_row + info_.output_scanline * row_bytes;
        jpeg_read_scanlines(&info_, &row, 1);
      }
      jpeg_finish_decompress(&info_);
    });
  }

  std::vector<std::byte> colour_profile() {
    JOCTET* bytes = nullptr;
    unsigned size = 0;
    guarded([this, &bytes, &size] { jpeg_read_icc_profile(&info_, &bytes, &size); });
    const std::unique_ptr<JOCTET, Freer> owner(bytes);
    if (bytes == nullptr || size > kMaxProfileBytes) return {};
    const auto profile = std::as_bytes(std::span(bytes, size));
    return {profile.begin(), profile.end()};
  }

  int orientation() const {
    static constexpr char kPrefix[] = "Exif\0";  // with the 0 that ends the literal: 6 bytes
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const auto bytes = std::as_bytes(std::span(marker->data, marker->data_length));
      const auto prefix = std::as_bytes(std::span(kPrefix));
      if (marker->marker == kExifMarker && bytes.size() >= prefix.size() &&
          std::equal(prefix.begin(), prefix.end(), bytes.begin())) {
        return exif_orientation(bytes.subspan(prefix.size()));
      }
    }
    return 1;
  }

 private:
  static JpegReader& of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }

  template <typename Step>
  void guarded(const Step& step) {
    if (setjmp(back_) != 0) {
      throw ImageError("the JPEG file cannot be read: " + std::string(message_.data()) +
                       ": send it whole, or save it anew");
    }
    step();
  }

  std::int64_t choose_channels() {
    switch (info_.jpeg_color_space) {
      case JCS_GRAYSCALE:
        info_.out_color_space = JCS_GRAYSCALE;
        return 1;
      case JCS_RGB:
      case JCS_YCbCr:
        info_.out_color_space = JCS_RGB;
        return 3;
      case JCS_CMYK:
      case JCS_YCCK:
        info_.out_color_space = JCS_CMYK;
        return 4;
      default:
        throw ImageError("the JPEG file has " + std::to_string(info_.num_components) +
                         " components of an unknown colour space: save it as RGB");
    }
  }

  [[noreturn]] void leave() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), message_.data());
    std::longjmp(back_, 1);
  }

  /// A warning after which libjpeg makes up the rest of the image is an error here.
  void on_message(int level) {
    static constexpr int kDamage[] = {JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_JPEG_EOF, JWRN_MUST_RESYNC};
    if (level < 0 && std::find(std::begin(kDamage), std::end(kDamage), errors_.msg_code) != std::end(kDamage))
      leave();
  }

  void on_progress() {
    if (info_.input_scan_number <= kMaxScans) return;
    std::snprintf(message_.data(), message_.size(), "it has more than %d scans", kMaxScans);
    std::longjmp(back_, 1);
  }

  static void on_skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    if (static_cast<std::size_t>(count) > info->src->bytes_in_buffer) ERREXIT(info, JERR_INPUT_EOF);
    info->src->next_input_byte += count;
    info->src->bytes_in_buffer -= static_cast<std::size_t>(count);
  }

  std::span<const std::byte> file_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf back_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
};

}  // namespace

bool is_jpeg(std::span<const std::byte> file) {
  return file.size() >= 3 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8} &&
         file[2] == std::byte{0xFF};
}

FileImage decode_jpeg(std::span<const std::byte> file, const ImageLimits& limits) {
  JpegReader reader(file);
  FileImage image = reader.read_header(limits);
  // Both are read from what lies before the pixels, and gone after them.
  image.colour_profile = reader.colour_profile();
  image.orientation = reader.orientation();
  image.samples.resize(static_cast<std::size_t>(image.height * image.width * image.channels));
  reader.read_pixels(image);
  if (image.channels == 4) {
    for (std::uint8_t& ink : image.samples)
      ink = static_cast<std::uint8_t>(255 - ink);
  }
  return image;
}

}  // namespace gemmad
