#include "daemon/ctl/encode_file/encode_file_options.h"

#include <map>

#include "daemon/ctl/option_values.h"
#include "daemon/ctl/options.h"

namespace gemmad {

namespace {

/// Whether `value` is the second of two words. Throws CtlUsageError when it is neither.
bool is_second(const std::string& option, const std::string& value, const std::string& first,
               const std::string& second) {
  if (value != first && value != second)
    throw CtlUsageError(option + " is '" + value.substr(0, 64) + "'; it must be " + first + " or " + second);
  return value == second;
}

using Set = void (*)(EncodeFileOptions&, const std::string& value);

const std::map<std::string, Set>& setters() {
  using O = EncodeFileOptions;
  using Text = const std::string&;
  static const std::map<std::string, Set> options = {
      {"--out", [](O& o, Text v) { o.folder = v; }},
      {"--field", [](O& o, Text v) { o.field = v; }},
      {"--on-error", [](O& o, Text v) { o.skips_errors = is_second("--on-error", v, "stop", "skip"); }},
      {"--format",
       [](O& o, Text v) {
         o.format =
             is_second("--format", v, "gemmad", "trainer") ? FileFormat::kTrainer : FileFormat::kGemmad;
       }},
      {"--in-flight", [](O& o, Text v) { o.in_flight = to_number<std::int64_t>("--in-flight", v, 1, 64); }},
      {"--batch", [](O& o, Text v) { o.batch = to_number<std::int64_t>("--batch", v, 1, 65'536); }},
  };
  return options;
}

}  // namespace

bool is_encode_file_option(const std::string& name) {
  return setters().contains(name);
}

void set_encode_file_option(EncodeFileOptions& options, const std::string& name, const std::string& value) {
  setters().at(name)(options, value);
}

std::string name_of(FileFormat format) {
  return format == FileFormat::kTrainer ? "trainer" : "gemmad";
}

std::string encode_file_help_text() {
  return R"(encode-file: a data set of prompts, each into a file of its own. A line of IN.jsonl is a JSON string, or an object
with "prompt" or "input_ids", and maybe "id": what its file is called, of A-Z a-z 0-9 . _ - (a whole number is fine);
without one that is the line's number. Files are DIR/FOLDER/ID.safetensors, where FOLDER counts thousands of lines:
lines 1 to 1000 go to 000000. DIR/manifest.json tells what was asked for and of which model.
  --out DIR             where to; made if it is not there. A run that was stopped or killed is taken up again by the
                        same command: no file is written again, and requests whose files are all there are not sent
                        again. A DIR that another model or other settings have filled is refused
  --overwrite           replaces what does not fit: the manifest, files of other settings, files of other prompts
  --field NAME          the object's field with the text (default prompt)
  --outputs, --layers, --prefer, --deadline-ms, --rank   as of encode; default: features where the daemon has them,
                        else last_hidden_state. Files hold the tensors as the daemon names them, and input_ids
  --format trainer      what LTX-2's trainer reads: video_prompt_embeds and audio_prompt_embeds, which are the features
                        with rows of zeros in front up to 1024, and prompt_attention_mask, 0 for such a row and 1 for
                        a token
  --on-error stop|skip  what becomes of the rest when a line is no prompt, or a prompt fails alone (default stop). Those
                        that are skipped are listed in DIR/skipped.jsonl
  --in-flight N         requests at a time (default 4). The daemon computes each alone, so that the same input gives the
                        same bytes every time, also when it was killed and taken up again
  --batch N             prompts of a request (default 16, or fewer where the daemon takes fewer)
  --json                the summary as a line of JSON
Ctrl-C ends it after the requests in flight. Exit status: 0 all files are there; 1 it stopped before the end, and the same
command goes on; 2 wrong arguments, or a DIR of something else; 3 all is done but for what was skipped.
)";
}

}  // namespace gemmad
