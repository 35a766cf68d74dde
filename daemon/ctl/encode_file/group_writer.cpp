#include "daemon/ctl/encode_file/group_writer.h"

#include <utility>

#include "daemon/ctl/control_client.h"
#include "daemon/ctl/encode_file/prompt_tensors.h"

namespace gemmad {

void GroupWriter::begin(GroupPart part, Reader::Result result, nlohmann::json reply) {
  // A task is copied, a lease is not.
  auto lease = std::make_shared<Reader::Result>(std::move(result));
  helper_.begin([this, part = std::move(part), lease = std::move(lease), reply = std::move(reply)] {
    try {
      write(part, *lease, reply);
    } catch (const std::exception& error) {
      context_.run.fail(error.what());
    }
    lease->release();
  });
}

void GroupWriter::write(const GroupPart& part, const Reader::Result& result, const nlohmann::json& reply) {
  const nlohmann::json& replies = reply.at("prompts");
  if (result.prompts().size() != part.count || replies.size() != part.count)
    throw ClientError("the daemon's result has another number of prompts than the request");
  for (std::size_t i = 0; i < part.count; ++i) {
    const GroupedPrompt& prompt = part.at(i);
    const Reader::Prompt& encoded = result.prompts()[i];
    if (prompt.is_there) continue;
    if (encoded.ok) {
      write_prompt(prompt, encoded, replies[i]);
    } else {
      context_.problems.report(
          {prompt.input.line, prompt.input.id, encoded.error_code + ": " + encoded.error_message});
    }
  }
}

void GroupWriter::write_prompt(const GroupedPrompt& prompt, const Reader::Prompt& result,
                               const nlohmann::json& reply) {
  if (context_.format == FileFormat::kTrainer) {
    context_.folder.save(prompt.input, tensors_for_trainer(result).tensors);
  } else {
    const auto ids = reply.at("input_ids").get<std::vector<std::int32_t>>();
    context_.folder.save(prompt.input, tensors_as_they_are(result, ids).tensors);
  }
  context_.progress.add_encoded(result.num_tokens);
}

}  // namespace gemmad
