#include "daemon/model/ltx/pass_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace gemmad {
namespace {

// So that no list begins in the middle of what a device reads at a time.
constexpr std::size_t kListAlignment = 4;
constexpr std::int64_t kMaxLists = 8;

void check(std::span<const std::int64_t> offsets, std::span<const ProcessorUnit> units,
           std::int64_t sequence_length) {
  if (offsets.empty() || offsets.front() != 0)
    throw std::invalid_argument("a pass's offsets must begin with 0");
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    if (offsets[b + 1] <= offsets[b])
      throw std::invalid_argument("prompt " + std::to_string(b) + " of a pass is empty");
  }
  std::array<std::vector<bool>, 2> seen;
  seen.fill(std::vector<bool>(offsets.size() - 1));
  for (std::size_t u = 0; u < units.size(); ++u) {
    const ProcessorUnit& unit = units[u];
    const std::string subject = "unit " + std::to_string(u) + " of a pass ";
    if (unit.prompt >= offsets.size() - 1) {
      throw std::invalid_argument(subject + "is of prompt " + std::to_string(unit.prompt) + " of " +
                                  std::to_string(offsets.size() - 1));
    }
    if (!unit.wants_features && !unit.wants_embeddings)
      throw std::invalid_argument(subject + "wants nothing");
    std::vector<bool>& seen_prompts = seen[static_cast<std::size_t>(unit.modality)];
    if (seen_prompts[unit.prompt]) throw std::invalid_argument(subject + "is there twice");
    seen_prompts[unit.prompt] = true;
    const std::int64_t num_rows = offsets[unit.prompt + 1] - offsets[unit.prompt];
    if (num_rows > sequence_length) {
      throw std::invalid_argument(subject + "has " + std::to_string(num_rows) + " rows, the limit is " +
                                  std::to_string(sequence_length));
    }
  }
}

class Planner {
 public:
  Planner(std::span<const std::int64_t> offsets, std::span<const ProcessorUnit> units)
      : offsets_(offsets), units_(units) {
    plan_.num_tokens = offsets.back();
  }

  PassPlan plan(const ProcessorConfig& config, const std::function<std::int64_t(std::int64_t)>& padded_rows) {
    std::array<std::vector<std::size_t>, 2> prompts;
    for (const ProcessorUnit& unit : units_)
      prompts[static_cast<std::size_t>(unit.modality)].push_back(unit.prompt);
    if (config.variant == ProcessorVariant::kV1) {
      const std::vector<std::size_t> all = united(prompts[0], prompts[1]);
      add_projection(all, padded_rows);
      for (const Modality modality : kModalities)
        add_modality(modality, prompts[static_cast<std::size_t>(modality)], all);
    } else {
      for (const Modality modality : kModalities) {
        const std::vector<std::size_t>& own = prompts[static_cast<std::size_t>(modality)];
        add_projection(own, padded_rows);
        add_modality(modality, own, own);
      }
    }
    return std::move(plan_);
  }

 private:
  std::int64_t rows_of(std::size_t prompt) const { return offsets_[prompt + 1] - offsets_[prompt]; }

  std::vector<std::size_t> united(const std::vector<std::size_t>& first,
                                  const std::vector<std::size_t>& second) const {
    std::vector<std::size_t> all = first;
    std::vector<bool> is_there(offsets_.size() - 1);
    for (const std::size_t prompt : first)
      is_there[prompt] = true;
    for (const std::size_t prompt : second) {
      if (!is_there[prompt]) all.push_back(prompt);
    }
    return all;
  }

  ListRange add_list(const std::vector<std::int32_t>& numbers) {
    std::vector<std::int32_t>& lists = plan_.lists;
    lists.resize((lists.size() + kListAlignment - 1) / kListAlignment * kListAlignment);
    const ListRange range{lists.size(), numbers.size()};
    lists.insert(lists.end(), numbers.begin(), numbers.end());
    return range;
  }

  void add_projection(const std::vector<std::size_t>& prompts,
                      const std::function<std::int64_t(std::int64_t)>& padded_rows) {
    ProjectionPlan& projection = plan_.projections.emplace_back();
    if (prompts.empty()) return;
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> bounds = {0};
    for (const std::size_t prompt : prompts) {
      for (std::int64_t row = offsets_[prompt]; row < offsets_[prompt + 1]; ++row)
        rows.push_back(static_cast<std::int32_t>(row));
      bounds.push_back(static_cast<std::int32_t>(rows.size()));
    }
    projection.num_rows = static_cast<std::int64_t>(rows.size());
    const auto padded = static_cast<std::size_t>(padded_rows(projection.num_rows));
    // Rows that only fill up are a sequence of their own: they must not count in another's range.
    if (padded > rows.size()) bounds.push_back(static_cast<std::int32_t>(padded));
    rows.resize(padded, rows.front());
    projection.num_sequences = static_cast<std::int64_t>(bounds.size()) - 1;
    projection.rows = add_list(rows);
    projection.bounds = add_list(bounds);
  }

  /// `prompts` in the order of the modality's units, `projected` in that of the projection's rows.
  void add_modality(Modality modality, const std::vector<std::size_t>& prompts,
                    const std::vector<std::size_t>& projected) {
    ModalityPlan& of_modality = plan_.modalities[static_cast<std::size_t>(modality)];
    std::vector<std::int32_t> bounds;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const ProcessorUnit& unit = units_[u];
      if (unit.modality != modality) continue;
      const std::int64_t num_rows = rows_of(unit.prompt);
      of_modality.wants_features = of_modality.wants_features || unit.wants_features;
      of_modality.units.push_back(u);
      of_modality.unit_rows.push_back(
          {u, of_modality.num_rows, num_rows, unit.wants_embeddings, {bounds.size(), 2}});
      of_modality.num_rows += num_rows;
      bounds.insert(bounds.end(), {0, static_cast<std::int32_t>(num_rows)});
    }
    const std::size_t first = add_list(bounds).first;
    for (UnitRows& unit : of_modality.unit_rows)
      unit.bounds.first += first;
    if (!std::equal(prompts.begin(), prompts.end(), projected.begin(), projected.begin() + prompts.size()))
      of_modality.gathered = add_list(places_of(prompts, projected));
  }

  /// The rows of `prompts` among those of `projected`, which holds them all.
  std::vector<std::int32_t> places_of(const std::vector<std::size_t>& prompts,
                                      const std::vector<std::size_t>& projected) const {
    std::map<std::size_t, std::int64_t> first_rows;
    std::int64_t end = 0;
    for (const std::size_t prompt : projected) {
      first_rows[prompt] = end;
      end += rows_of(prompt);
    }
    std::vector<std::int32_t> rows;
    for (const std::size_t prompt : prompts) {
      for (std::int64_t row = 0; row < rows_of(prompt); ++row)
        rows.push_back(static_cast<std::int32_t>(first_rows[prompt] + row));
    }
    return rows;
  }

  std::span<const std::int64_t> offsets_;
  std::span<const ProcessorUnit> units_;
  PassPlan plan_;
};

}  // namespace

std::int64_t max_list_numbers(std::int64_t max_batch_tokens, std::int64_t max_padded_rows) {
  // Rows for two projections, or for one and a modality; bounds of its prompts and of what fills them up; two
  // bounds for each of a prompt's two units. A prompt has a token.
  return 2 * max_padded_rows + 2 * (max_batch_tokens + 2) + 4 * max_batch_tokens +
         kMaxLists * static_cast<std::int64_t>(kListAlignment);
}

PassPlan plan_pass(const ProcessorConfig& config, std::span<const std::int64_t> offsets,
                   std::span<const ProcessorUnit> units, std::int64_t sequence_length,
                   const std::function<std::int64_t(std::int64_t)>& padded_rows) {
  check(offsets, units, sequence_length);
  return Planner(offsets, units).plan(config, padded_rows);
}

}  // namespace gemmad
