// What a network card's driver says of itself, beside what stands in /sys: by ethtool's ioctl, and
// by the kernel's data center bridging messages.
//
//   if (auto rings = rings_of("eth0")) fmt::print("{} of {}", rings->receive, rings->receive_most);
//   if (auto queues = queues_of("eth0")) ...
//   if (auto priorities = priorities_of("eth0")) ...          // of PFC; {} if it is off
//
// Empty where the driver does not say, or this user may not ask.
#pragma once

#include <cstddef>
#include <hyperframes/apps/tools/doctor/host.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::tools::doctor {

std::optional<Rings> rings_of(const std::string& interface);
std::optional<Queues> queues_of(const std::string& interface);
std::optional<Pause> pause_of(const std::string& interface);
std::optional<std::vector<unsigned>> priorities_of(const std::string& interface);

/// The priorities that an answer to a question for the IEEE objects (RTM_GETDCB) switches on; empty
/// if it is an error, has none of them, or is cut short.
std::optional<std::vector<unsigned>> read_priorities(std::span<const std::byte> answer);
/// That question.
std::vector<std::byte> ask_for_priorities(const std::string& interface);

}  // namespace hyperframes::tools::doctor
