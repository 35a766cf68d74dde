#include "daemon/model/ltx/processor_files.h"

#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/model/ltx/processor_tensors.h"
#include "daemon/model/safetensors_header.h"
#include "daemon/model/tensor_problems.h"

namespace gemmad {
namespace {

/// A file with its header; of thousands of tensors, one is looked up at a time.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : file_(map_model_file(path)), header_(parse_safetensors_header(file_->bytes(), path.string())) {
    for (const SafetensorsEntry& entry : header_.tensors)
      entries_.emplace(entry.name, &entry);
  }

  const FileMetadata& metadata() const { return header_.metadata; }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  /// nullptr when it is not there.
  const SafetensorsEntry* find(std::string_view name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : found->second;
  }

 private:
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
  std::map<std::string_view, const SafetensorsEntry*> entries_;
};

}  // namespace

ProcessorFiles ProcessorFiles::open(const std::filesystem::path& checkpoint,
                                    const std::optional<std::filesystem::path>& projections,
                                    const StateSizes& states) {
  std::vector<std::unique_ptr<const OpenFile>> files;
  files.push_back(std::make_unique<const OpenFile>(checkpoint));
  if (projections) files.push_back(std::make_unique<const OpenFile>(*projections));

  ProcessorFiles opened;
  opened.metadata_ = parse_processor_metadata(files.front()->metadata(), checkpoint.string());
  check_fits(opened.config(), states, checkpoint.string());
  TensorProblems problems;
  for (const ProcessorTensor& expected : expected_tensors(opened.config(), states)) {
    bool is_found = false;
    for (const auto& file : files) {
      const SafetensorsEntry* entry = is_found ? nullptr : file->find(expected.name);
      if (entry == nullptr) continue;
      is_found = true;
      if (problems.check_weight(*entry, expected.shape)) opened.add(expected.name, *entry, file->file());
    }
    if (!is_found) problems.add_missing(expected.name, expected.shape);
  }
  std::string subject = checkpoint.string();
  if (projections) subject += " with " + projections->string();
  problems.throw_if_any(subject, "its config and the Gemma's");
  return opened;
}

ProcessorMetadata read_processor_metadata(const std::filesystem::path& checkpoint) {
  const OpenFile file(checkpoint);
  return parse_processor_metadata(file.metadata(), checkpoint.string());
}

}  // namespace gemmad
