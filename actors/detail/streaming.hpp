// Which way a method streams; generated code says it of each method.
#pragma once

#include <cstdint>

namespace hyperframes::detail {

enum class StreamKind : std::uint8_t { none, server, client, bidi };

template <class Method>
concept StreamingMethod = Method::streaming != StreamKind::none;

}  // namespace hyperframes::detail
