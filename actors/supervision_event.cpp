#include <hyperframes/actors/supervision_event.hpp>

#include <fmt/format.h>

#include <hyperframes/actors/detail/children.hpp>
#include <hyperframes/actors/detail/event_json.hpp>
#include <ranges>

namespace hyperframes {

std::string_view name(Strategy strategy) noexcept {
  switch (strategy) {
    case Strategy::one_for_one: return "one_for_one";
    case Strategy::one_for_all: return "one_for_all";
    case Strategy::rest_for_one: return "rest_for_one";
  }
  return "unknown";
}

std::string_view name(Decision decision) noexcept {
  switch (decision) {
    case Decision::restart: return "restart";
    case Decision::give_up: return "give_up";
    case Decision::end: return "end";
    case Decision::destroy: return "destroy";
  }
  return "unknown";
}

namespace {

using nlohmann::json;

double in_ms(Duration span) { return std::chrono::duration<double, std::milli>(span).count(); }
// Programs read them in languages that have no 64-bit integers.
std::string id_text(std::uint64_t id) { return fmt::format("{:016x}", id); }

std::string by_hand_text(const SupervisionEvent& event, const std::string& who) {
  if (event.reason == ExitReason::crashed)
    return "actor " + who + " was to be restarted by hand, but does not start: " + event.text +
           "; it stays down";
  const bool restarts = event.decision == Decision::restart;
  return "actor " + who + (restarts ? " is restarted by hand" : " is stopped by hand");
}

/// Ids are not quoted: elsewhere in a line they are not either.
std::string siblings_text(const std::vector<std::string>& siblings) {
  constexpr std::size_t most = 20;
  std::string text;
  for (const std::string& each : siblings | std::views::take(most)) {
    const bool id =
        each.size() == 16 && each.find_first_not_of("0123456789abcdef") == std::string::npos;
    text += (text.empty() ? "" : ", ") + (id ? each : "'" + each + "'");
  }
  if (siblings.size() > most) text += fmt::format(" and {} more", siblings.size() - most);
  return text;
}

std::string restart_text(const SupervisionEvent& event, const std::string& what) {
  std::string text = fmt::format("{}; restart {} of {} in {:g} ms", what, event.restarts,
                                 event.intensity, in_ms(event.pause));
  if (event.along.empty() && event.ended.empty()) return text;
  if (!event.along.empty()) text += ", with " + siblings_text(event.along);
  if (!event.ended.empty()) text += "; ended for good: " + siblings_text(event.ended);
  return text + " (" + std::string(name(event.strategy)) + ")";
}

}  // namespace

std::string SupervisionEvent::to_string() const {
  const std::string who = detail::title_of(name, actor);
  if (by_hand) return by_hand_text(*this, who);
  const std::string what = "actor " + who + " " + detail::ended_text(reason, text);
  switch (decision) {
    case Decision::restart: return restart_text(*this, what);
    case Decision::give_up: {
      const ExitReason last = causes.empty() ? ExitReason::crashed : causes.front().reason;
      return "actor " + who + " is given up after " + detail::restarts_text(restarts, period) +
             "; last it " + detail::ended_text(last, text);
    }
    case Decision::end: return what;
    case Decision::destroy:
      return "actor " + who + " had not ended when its grace period was over, and was destroyed" +
             (text.empty() ? "" : "; it waited on " + text);
  }
  return what;
}

namespace detail {

nlohmann::json event_json(const SupervisionEvent& event) {
  json causes = json::array();
  for (const Cause& cause : event.causes)
    causes.push_back({{"actor", id_text(cause.actor)},
                      {"name", cause.name},
                      {"reason", name(cause.reason)},
                      {"text", cause.text}});
  return {{"number", event.number},
          {"at_ns", event.at.time_since_epoch().count()},
          {"decision", name(event.decision)},
          {"by_hand", event.by_hand},
          {"actor", id_text(event.actor)},
          {"name", event.name},
          {"shard", event.shard},
          {"supervisor", event.supervisor ? json(id_text(event.supervisor)) : json()},
          {"reason", name(event.reason)},
          {"text", event.text},
          {"causes", std::move(causes)},
          {"restarts", event.restarts},
          {"intensity", event.intensity},
          {"period_ms", in_ms(event.period)},
          {"pause_ms", in_ms(event.pause)},
          {"strategy", name(event.strategy)},
          {"along", event.along},
          {"ended", event.ended},
          {"line", event.to_string()}};
}

}  // namespace detail

std::string SupervisionEvents::to_json() const {
  json object = {{"latest", latest},
                 {"lost", lost},
                 {"now_ns", now.time_since_epoch().count()},
                 {"node_begun_ns", node_begun.time_since_epoch().count()},
                 {"events", json::array()}};
  for (const SupervisionEvent& event : events)
    object["events"].push_back(detail::event_json(event));
  // Names and texts may be any bytes.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace hyperframes
