#include "daemon/ctl/encode_file/prompt_source.h"

#include <algorithm>
#include <utility>

namespace gemmad {

PromptSource::PromptSource(const std::string& input, Settings settings, OutputFolder& folder,
                           Problems& problems, Progress& progress, const RunState& run)
    : settings_(std::move(settings)),
      folder_(folder),
      problems_(problems),
      progress_(progress),
      run_(run),
      lines_(input) {}

std::shared_ptr<const PromptGroup> PromptSource::take() {
  const std::lock_guard lock(mutex_);
  while (!run_.stopping()) {
    PromptGroup group = read_group();
    if (group.empty()) return nullptr;
    const auto num_there = std::count_if(group.begin(), group.end(),
                                         [](const GroupedPrompt& prompt) { return prompt.is_there; });
    for (std::ptrdiff_t i = 0; i < num_there; ++i)
      progress_.add_there();
    if (num_there < static_cast<std::ptrdiff_t>(group.size()))
      return std::make_shared<const PromptGroup>(std::move(group));
  }
  return nullptr;
}

PromptGroup PromptSource::read_group() {
  PromptGroup group;
  std::size_t bytes = 0;
  while (group.size() < settings_.batch) {
    if (!next_) next_ = read_prompt();
    if (!next_) break;
    bytes += next_->input.request_bytes;
    if (bytes > settings_.limits.max_request_bytes) break;
    group.push_back(*std::exchange(next_, std::nullopt));
  }
  return group;
}

std::optional<GroupedPrompt> PromptSource::read_prompt() {
  // Where a problem stops the run, the lines before it still make a group.
  while (!run_.stopping()) {
    const std::optional<InputLine> line = lines_.next();
    if (!line) return std::nullopt;
    try {
      return place(*line);
    } catch (const LineError& error) {
      problems_.report({line->number, "", error.what()});
    }
  }
  return std::nullopt;
}

GroupedPrompt PromptSource::place(const InputLine& line) {
  GroupedPrompt prompt;
  prompt.input = parse_input_line(line, settings_.field, settings_.limits);
  if (folder_.enter(line.number)) line_of_id_.clear();
  const auto [earlier, is_new] = line_of_id_.emplace(prompt.input.id, line.number);
  if (!is_new) {
    throw LineError("its id '" + prompt.input.id + "' is that of line " + std::to_string(earlier->second) +
                    " too");
  }
  const OutputFolder::State state = folder_.state_of(prompt.input);
  if (state == OutputFolder::State::kForeign && !settings_.overwrites) {
    throw LineError(folder_.file_of(prompt.input).string() +
                    " is there and not of this prompt (--overwrite replaces it)");
  }
  prompt.is_there = state == OutputFolder::State::kDone;
  return prompt;
}

}  // namespace gemmad
