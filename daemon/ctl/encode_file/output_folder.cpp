#include "daemon/ctl/encode_file/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <utility>

#include "config/config_error.h"
#include "config/strict_json.h"
#include "daemon/ctl/encode_file/encode_target.h"
#include "daemon/ctl/encode_file/read_metadata.h"
#include "daemon/ctl/encode_file/sha256.h"
#include "daemon/ctl/whole_file.h"

namespace gemmad {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPromptKey = "prompt";
constexpr const char* kSettingsKey = "settings_sha256";
constexpr std::size_t kFolderDigits = 6;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw SystemError(error.value(), "make the folder " + folder.string());
}

FileDescriptor hold(const fs::path& folder) {
  FileDescriptor fd(check_system(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                 "open the folder " + folder.string()));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) throw CtlUsageError(folder.string() + ": another encode-file writes there");
  throw SystemError(errno, "lock the folder " + folder.string());
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_temporary_name(entry->path().filename().string()) && ::unlink(entry->path().c_str()) != 0)
      throw SystemError(errno, "remove " + entry->path().string());
  }
  if (error) throw SystemError(error.value(), "list the folder " + folder.string());
}

/// The settings that a manifest has. Throws CtlUsageError when it is no manifest.
json manifest_settings(const fs::path& manifest) {
  try {
    const json content =
        parse_strict_json(read_text_file(manifest, kMaxConfigBytes), manifest.string(), kMaxConfigBytes);
    return content.at("settings");
  } catch (const ConfigError& error) {
    throw CtlUsageError(std::string(error.what()) + " (--overwrite replaces it)");
  } catch (const json::exception&) {
    throw CtlUsageError(manifest.string() + ": was not written by encode-file (--overwrite replaces it)");
  }
}

}  // namespace

OutputFolder::OutputFolder(fs::path folder, const json& settings, bool overwrites)
    : folder_(std::move(folder)), settings_hash_(sha256_hex(settings.dump())) {
  make_folder(folder_);
  lock_ = hold(folder_);
  remove_leftovers(folder_);
  settle_manifest(settings, overwrites);
}

void OutputFolder::settle_manifest(const json& settings, bool overwrites) const {
  const fs::path manifest = folder_ / "manifest.json";
  std::error_code error;
  if (fs::exists(manifest, error) && !overwrites) {
    const std::string difference = settings_difference(manifest_settings(manifest), settings);
    if (difference.empty()) return;
    throw CtlUsageError(folder_.string() + " was filled with other settings: " + difference +
                        "; choose another folder, or --overwrite to encode all anew");
  }
  if (error) throw SystemError(error.value(), "look for " + manifest.string());
  const json content = {{"made_by", "gemmactl encode-file " GEMMAD_VERSION},
                        {"settings", settings},
                        {kSettingsKey, settings_hash_},
                        {"lines_per_folder", kLinesPerFolder}};
  WholeFile file(manifest);
  file.write(content.dump(2) + "\n");
  file.commit();
}

OutputFolder::State OutputFolder::state_of(const InputPrompt& prompt) const {
  const fs::path file = file_of(prompt);
  const MetadataOfFile found = read_metadata(file);
  if (found.kind != MetadataOfFile::Kind::kWhole) return State::kMissing;
  const auto settings = found.metadata.find(kSettingsKey);
  if (settings == found.metadata.end()) return State::kForeign;
  if (settings->second != settings_hash_) return State::kMissing;
  const auto of_prompt = found.metadata.find(kPromptKey);
  const bool same = of_prompt != found.metadata.end() && of_prompt->second == prompt.fingerprint;
  return same ? State::kDone : State::kForeign;
}

bool OutputFolder::enter(std::int64_t line) {
  fs::path folder = folder_of(line);
  if (folder == entered_) return false;
  make_folder(folder);
  remove_leftovers(folder);
  entered_ = std::move(folder);
  return true;
}

void OutputFolder::save(const InputPrompt& prompt, const std::vector<TensorToWrite>& tensors) const {
  write_safetensors(file_of(prompt), tensors,
                    {{"made_by", "gemmactl encode-file " GEMMAD_VERSION},
                     {kPromptKey, prompt.fingerprint},
                     {kSettingsKey, settings_hash_}});
}

fs::path OutputFolder::folder_of(std::int64_t line) const {
  std::string name = std::to_string((line - 1) / kLinesPerFolder);
  if (name.size() < kFolderDigits) name.insert(0, kFolderDigits - name.size(), '0');
  return folder_ / name;
}

fs::path OutputFolder::file_of(const InputPrompt& prompt) const {
  return folder_of(prompt.line) / (prompt.id + ".safetensors");
}

}  // namespace gemmad
