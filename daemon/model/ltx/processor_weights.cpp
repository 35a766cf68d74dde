#include "daemon/model/ltx/processor_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "daemon/model/in_parts.h"
#include "daemon/model/ltx/processor_tensors.h"

namespace gemmad {
namespace {

// Of a projection taken apart by hidden states: so much is on the host at a time.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
// So many channels of all states lie in a core's first cache.
constexpr std::int64_t kBlockChannels = 64;

/// One row of a projection: of channel d of state l, element d num_states + l of `from` to
/// to[(l - states.begin) state_stride + d].
template <typename T>
void take_row_apart(const std::byte* from, const StateSizes& sizes, Range states, std::int64_t state_stride,
                    T* to) {
  for (std::int64_t first = 0; first < sizes.hidden_size; first += kBlockChannels) {
    const std::int64_t last = std::min(first + kBlockChannels, sizes.hidden_size);
    for (std::int64_t state = states.begin; state < states.end; ++state) {
      T* const of_state = to + (state - states.begin) * state_stride;
      for (std::int64_t d = first; d < last; ++d) {
        // A tensor of a mapped file need not be aligned.
        std::memcpy(of_state + d, from + static_cast<std::size_t>(d * sizes.num_states + state) * sizeof(T),
                    sizeof(T));
      }
    }
  }
}

/// The rows of a projection, [rows, D num_states], to `to`: [states, rows, D] of the same type.
void take_apart(const ConstMatrixView& rows, const StateSizes& sizes, Range states, int num_threads,
                std::byte* to) {
  const std::size_t element_bytes = gemmad::size_bytes(rows.dtype);
  const auto row_bytes = static_cast<std::size_t>(rows.columns) * element_bytes;
  const std::int64_t state_stride = rows.rows * sizes.hidden_size;
  const auto all = static_cast<std::size_t>(rows.rows);
  in_parts(
      all, std::min(all, static_cast<std::size_t>(num_threads)), [&](std::size_t begin, std::size_t count) {
        for (std::size_t row = begin; row < begin + count; ++row) {
          const std::byte* const from = rows.as<std::byte>() + row * row_bytes;
          const std::size_t first = row * static_cast<std::size_t>(sizes.hidden_size);
          if (element_bytes == sizeof(std::uint16_t)) {
            take_row_apart(from, sizes, states, state_stride, reinterpret_cast<std::uint16_t*>(to) + first);
          } else {
            take_row_apart(from, sizes, states, state_stride, reinterpret_cast<std::uint32_t*>(to) + first);
          }
        }
      });
}

class Loader {
 public:
  Loader(const WeightSource& source, const ProcessorConfig& config, const StateSizes& sizes,
         const ProcessorShare& share, Ops& ops, int num_threads, const LoadProgress& progress)
      : config_(config),
        sizes_(sizes),
        share_(share),
        ops_(ops),
        num_threads_(num_threads),
        filler_(source, ops, ProcessorWeights::size_bytes(config, sizes, share, ops.compute_dtype()),
                progress) {}

  ProcessorWeights load() {
    ProcessorWeights weights;
    weights.share = share_;
    for (std::size_t projection = 0; projection < config_.num_projections(); ++projection)
      weights.projections.push_back(load_projection(projection));
    if (share_.has_connectors) {
      for (const Modality modality : kModalities)
        weights.connectors.push_back(load_connector(modality));
    }
    weights.memory = filler_.finish();
    return weights;
  }

 private:
  ProjectionWeights load_projection(std::size_t projection) {
    ProjectionWeights out;
    if (!share_.states.empty())
      out.states = columns_of_states(projection_name(config_, projection, "weight"));
    if (share_.has_connectors && config_.variant == ProcessorVariant::kV2)
      out.bias = filler_.whole(projection_name(config_, projection, "bias"));
    return out;
  }

  std::vector<ConstTensorView> columns_of_states(const std::string& name) {
    const HostTensor tensor = filler_.tensor(name);
    const ConstMatrixView from = tensor.view;
    const std::int64_t num_states = share_.states.size();
    const std::int64_t hidden_size = sizes_.hidden_size;
    const TensorView all = filler_.make_buffer({num_states, from.rows, hidden_size});
    const std::size_t row_bytes =
        static_cast<std::size_t>(num_states * hidden_size) * gemmad::size_bytes(from.dtype);
    const auto rows_at_once =
        std::clamp(static_cast<std::int64_t>(kPieceBytes / row_bytes), std::int64_t{1}, from.rows);
    const auto piece =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(rows_at_once) * row_bytes);
    for (std::int64_t row = 0; row < from.rows; row += rows_at_once) {
      const ConstMatrixView rows = from.row_range(row, std::min(row + rows_at_once, from.rows));
      take_apart(rows, sizes_, share_.states, num_threads_, piece.get());
      for (std::int64_t state = 0; state < num_states; ++state)
        upload_rows(rows_of(all, state, row, rows.rows), piece.get(), state, from.dtype);
      filler_.release({{rows.data, rows.dtype, {rows.rows, rows.columns}}, tensor.owner});
      const std::size_t elements = static_cast<std::size_t>(rows.rows * num_states * hidden_size);
      filler_.count_taken(elements * gemmad::size_bytes(from.dtype));
      filler_.advance(elements * gemmad::size_bytes(all.dtype));
    }
    std::vector<ConstTensorView> states;
    for (std::int64_t state = 0; state < num_states; ++state)
      states.push_back(rows_of(all, state, 0, from.rows));
    return states;
  }

  /// `piece`: [states, rows, D].
  void upload_rows(TensorView to, const std::byte* piece, std::int64_t state, DType dtype) {
    const ConstTensorView from{nullptr, dtype, to.shape};
    const std::byte* const data = piece + static_cast<std::size_t>(state) * from.size_bytes();
    ops_.upload(to, {data, dtype, to.shape}, ops_.stream());
  }

  /// Of a state in `all` [states, rows, D].
  static TensorView rows_of(const TensorView& all, std::int64_t state, std::int64_t first_row,
                            std::int64_t num_rows) {
    const std::int64_t first = (state * all.shape[1] + first_row) * all.shape[2];
    return {all.as<std::byte>() + static_cast<std::size_t>(first) * gemmad::size_bytes(all.dtype),
            all.dtype,
            {num_rows, all.shape[2]}};
  }

  ConnectorWeights load_connector(Modality modality) {
    ConnectorWeights out;
    out.registers = filler_.whole(connector_prefix(modality) + "learnable_registers");
    for (std::int64_t block = 0; block < config_.connector(modality).num_layers; ++block)
      out.blocks.push_back(load_block(config_.connector(modality), block_prefix(modality, block)));
    return out;
  }

  ConnectorBlock load_block(const ConnectorConfig& connector, const std::string& prefix) {
    ConnectorBlock out;
    out.qkv = fused_heads(connector, prefix + "attn1.", ".weight");
    out.qkv_bias = fused_heads(connector, prefix + "attn1.", ".bias");
    out.q_norm = filler_.whole(prefix + "attn1.q_norm.weight");
    out.k_norm = filler_.whole(prefix + "attn1.k_norm.weight");
    if (config_.has_gates) {
      out.gate = filler_.whole(prefix + "attn1.to_gate_logits.weight");
      out.gate_bias = filler_.whole(prefix + "attn1.to_gate_logits.bias");
    }
    out.out = filler_.whole(prefix + "attn1.to_out.0.weight");
    out.out_bias = filler_.whole(prefix + "attn1.to_out.0.bias");
    out.up = filler_.whole(prefix + "ff.net.0.proj.weight");
    out.down = filler_.whole(prefix + "ff.net.2.weight");
    if (config_.has_ffn_bias) {
      out.up_bias = filler_.whole(prefix + "ff.net.0.proj.bias");
      out.down_bias = filler_.whole(prefix + "ff.net.2.bias");
    }
    return out;
  }

  /// Of each head: the rows (elements, of a bias) of its query, its key, its value.
  ConstTensorView fused_heads(const ConnectorConfig& connector, const std::string& prefix,
                              const std::string& suffix) {
    std::vector<HostTensor> tensors;
    for (const char* part : {"to_q", "to_k", "to_v"})
      tensors.push_back(filler_.tensor(prefix + part + suffix));
    const bool is_bias = tensors.front().view.shape.rank() == 1;
    // A head's part of a bias is taken for a row, so that it is contiguous.
    const std::int64_t rows_of_head = is_bias ? 1 : connector.head_dim;
    const std::int64_t columns = is_bias ? connector.head_dim : connector.width();
    std::vector<ConstMatrixView> parts;
    for (std::int64_t head = 0; head < connector.num_heads; ++head) {
      for (const HostTensor& tensor : tensors) {
        const ConstTensorView all{
            tensor.view.data, tensor.view.dtype, {connector.num_heads * rows_of_head, columns}};
        parts.push_back(ConstMatrixView(all).row_range(head * rows_of_head, (head + 1) * rows_of_head));
      }
    }
    const std::int64_t num_rows = 3 * connector.num_heads * rows_of_head;
    const TensorView fused = filler_.put_stack({num_rows, columns}, parts);
    for (const HostTensor& tensor : tensors)
      filler_.release_whole(tensor);
    return is_bias ? ConstTensorView{fused.data, fused.dtype, {num_rows * columns}} : fused;
  }

  const ProcessorConfig& config_;
  const StateSizes& sizes_;
  const ProcessorShare& share_;
  Ops& ops_;
  int num_threads_;
  WeightFiller filler_;
};

}  // namespace

ProcessorShare whole_processor(const StateSizes& states) {
  return {{0, states.num_states}, true};
}

std::uint64_t ProcessorWeights::size_bytes(const ProcessorConfig& config, const StateSizes& states,
                                           const ProcessorShare& share, DType compute_dtype) {
  std::int64_t elements = 0;
  for (const ProcessorTensor& tensor : expected_tensors(config, states)) {
    const std::int64_t all = tensor.shape.num_elements();
    if (tensor.is_split_by_states) {
      elements += all / states.num_states * share.states.size();
    } else if (share.has_connectors) {
      elements += all;
    }
  }
  return static_cast<std::uint64_t>(elements) * gemmad::size_bytes(compute_dtype);
}

ProcessorWeights load_processor_weights(const WeightSource& source, const ProcessorConfig& config,
                                        const StateSizes& states, const ProcessorShare& share, Ops& ops,
                                        int num_threads, const LoadProgress& progress) {
  return Loader(source, config, states, share, ops, num_threads, progress).load();
}

}  // namespace gemmad
