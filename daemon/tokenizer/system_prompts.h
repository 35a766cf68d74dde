// What the model is told before a prompt that it is to enhance, unless the client says something else.
#pragma once

#include <string_view>

namespace gemmad {

/// Ends in one newline. `with_image`: for a prompt that comes with the video's first picture.
std::string_view default_system_prompt(bool with_image);

}  // namespace gemmad
