#include "daemon/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace gemmad {
namespace {

/// Output o is the sum over t of weights[o * num_taps + t] * input[first[o] + t], rounded, over 2^precision.
struct AxisWeights {
  std::int64_t num_taps = 0;
  int precision = 0;
  std::vector<std::int64_t> first;  // [out]
  std::vector<std::int32_t>
      weights;                      // [out, num_taps]; each output's begin at its first and may end in zeros
  std::vector<std::int64_t> count;  // [out] how many of the taps lie in the input
};

std::int32_t fixed_point(double weight, int precision) {
  return static_cast<std::int32_t>(weight * static_cast<double>(1 << precision) + 0.5);
}

AxisWeights pillow_weights(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  const double inverse = 1.0 / support;
  AxisWeights axis;
  axis.precision = 22;
  axis.num_taps = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  axis.weights.resize(static_cast<std::size_t>(out * axis.num_taps));
  std::vector<double> exact(static_cast<std::size_t>(axis.num_taps));
  for (std::int64_t o = 0; o < out; ++o) {
    const double centre = (static_cast<double>(o) + 0.5) * scale;
    const auto begin = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
    const auto end = std::min(static_cast<std::int64_t>(centre + support + 0.5), in);
    double sum = 0;
    for (std::int64_t t = 0; t < end - begin; ++t) {
      const double distance = std::abs((static_cast<double>(t + begin) - centre + 0.5) * inverse);
      exact[static_cast<std::size_t>(t)] = std::max(1.0 - distance, 0.0);
      sum += exact[static_cast<std::size_t>(t)];
    }
    axis.first.push_back(begin);
    axis.count.push_back(end - begin);
    for (std::int64_t t = 0; t < end - begin; ++t) {
      axis.weights[static_cast<std::size_t>(o * axis.num_taps + t)] =
          fixed_point(exact[static_cast<std::size_t>(t)] / sum, axis.precision);
    }
  }
  return axis;
}

AxisWeights torch_weights(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  AxisWeights axis;
  axis.num_taps = 2;
  std::vector<double> second;  // [out], the weight of the right neighbour
  double largest = 0;
  for (std::int64_t o = 0; o < out; ++o) {
    const double place = std::max((static_cast<double>(o) + 0.5) * scale - 0.5, 0.0);
    const std::int64_t left = std::min(static_cast<std::int64_t>(place), in - 1);
    axis.first.push_back(left);
    axis.count.push_back(std::min<std::int64_t>(2, in - left));
    second.push_back(left + 1 < in ? place - static_cast<double>(left) : 0.0);
    largest = std::max({largest, second.back(), 1.0 - second.back()});
  }
  // torch keeps weights in 16 bits, with as many of them behind the point as the largest weight allows.
  while (axis.precision < 22 && fixed_point(largest, axis.precision + 1) < 1 << 15)
    ++axis.precision;
  for (const double weight : second) {
    axis.weights.push_back(fixed_point(1.0 - weight, axis.precision));
    axis.weights.push_back(fixed_point(weight, axis.precision));
  }
  return axis;
}

std::uint8_t rounded(std::int32_t sum, int precision) {
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (precision - 1))) >> precision, 0, 255));
}

RgbImage resize_x(const RgbImage& image, const AxisWeights& axis) {
  RgbImage out{image.height, static_cast<std::int64_t>(axis.first.size()), {}};
  out.pixels.resize(static_cast<std::size_t>(out.height * out.width) * 3);
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < out.height; ++y) {
    const std::uint8_t* row = image.pixels.data() + y * image.width * 3;
    for (std::size_t x = 0; x < axis.first.size(); ++x, to += 3) {
      const std::int32_t* weights = axis.weights.data() + static_cast<std::int64_t>(x) * axis.num_taps;
      const std::uint8_t* from = row + axis.first[x] * 3;
      std::int32_t sums[3] = {};
      for (std::int64_t t = 0; t < axis.count[x]; ++t, from += 3) {
        for (int c = 0; c < 3; ++c)
          sums[c] += weights[t] * from[c];
      }
      for (int c = 0; c < 3; ++c)
        to[c] = rounded(sums[c], axis.precision);
    }
  }
  return out;
}

RgbImage resize_y(const RgbImage& image, const AxisWeights& axis) {
  RgbImage out{static_cast<std::int64_t>(axis.first.size()), image.width, {}};
  const auto row_size = static_cast<std::size_t>(out.width) * 3;
  out.pixels.resize(static_cast<std::size_t>(out.height) * row_size);
  std::vector<std::int32_t> sums(row_size);
  for (std::size_t y = 0; y < axis.first.size(); ++y) {
    std::fill(sums.begin(), sums.end(), 0);
    const std::int32_t* weights = axis.weights.data() + static_cast<std::int64_t>(y) * axis.num_taps;
    for (std::int64_t t = 0; t < axis.count[y]; ++t) {
      const std::uint8_t* from = image.pixels.data() + static_cast<std::size_t>(axis.first[y] + t) * row_size;
      for (std::size_t i = 0; i < row_size; ++i)
        sums[i] += weights[t] * from[i];
    }
    std::uint8_t* to = out.pixels.data() + y * row_size;
    for (std::size_t i = 0; i < row_size; ++i)
      to[i] = rounded(sums[i], axis.precision);
  }
  return out;
}

/// A side that stays as it is needs no pass.
template <typename WeightsOf>
RgbImage resize(const RgbImage& image, std::int64_t height, std::int64_t width, const WeightsOf& weights_of) {
  RgbImage out = image.width == width ? image : resize_x(image, weights_of(image.width, width));
  return out.height == height ? out : resize_y(out, weights_of(out.height, height));
}

RgbImage crop_centre(const RgbImage& image, std::int64_t height, std::int64_t width) {
  RgbImage out{height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width) * 3)};
  const std::int64_t top = (image.height - height) / 2;
  const std::int64_t left = (image.width - width) / 2;
  for (std::int64_t y = 0; y < height; ++y) {
    std::memcpy(out.pixels.data() + y * width * 3, image.pixels.data() + ((top + y) * image.width + left) * 3,
                static_cast<std::size_t>(width) * 3);
  }
  return out;
}

}  // namespace

RgbImage resize_to_long_side(const RgbImage& image, std::int64_t long_side) {
  const auto in_height = static_cast<double>(image.height);
  const auto in_width = static_cast<double>(image.width);
  const double scale = static_cast<double>(long_side) / std::max(in_height, in_width);
  const auto height = static_cast<std::int64_t>(in_height * scale);
  const auto width = static_cast<std::int64_t>(in_width * scale);
  if (height < 1 || width < 1) {
    throw ImageError("the image is " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                     " pixels: nothing is left of its shorter side where its longer one has " +
                     std::to_string(long_side) + ": crop it");
  }
  const double filling =
      std::max(static_cast<double>(height) / in_height, static_cast<double>(width) / in_width);
  const auto full_height = static_cast<std::int64_t>(std::ceil(in_height * filling));
  const auto full_width = static_cast<std::int64_t>(std::ceil(in_width * filling));
  return crop_centre(resize(image, full_height, full_width, torch_weights), height, width);
}

RgbImage resize_pillow(const RgbImage& image, std::int64_t height, std::int64_t width) {
  return resize(image, height, width, pillow_weights);
}

}  // namespace gemmad
