#include "client/semctl/wording.h"

#include <chrono>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/wording.h"
#include "client/semctl/duration.h"

namespace semaphore::semctl {
namespace {

struct Wording {
  const char* field;  // The last part of its path, or all of it where that alone is ambiguous.
  const char* option;
};

// All fields that a user can set; the first that fits counts. Below them names of values, and
// options of the client library.
constexpr Wording kWordings[] = {
    {"revoke.lease_id", "--lease"},
    {"back_off.initial_ms", "--back-off"},
    {"back_off.max_ms", "--back-off-max"},
    {"back_off", "--back-off"},
    {"semaphore", "NAME"},
    {"semaphores", "NAME"},
    {"prefixes", "NAME"},
    {"lease_id", "LEASE"},
    {"ticket_id", "TICKET"},
    {"prefix", "PREFIX"},
    {"limit", "--limit"},
    {"limit_mismatch", "--adopt"},
    {"permits", "--permits"},
    {"priority", "--priority"},
    {"holder", "--holder"},
    {"wait_ms", "--wait"},
    {"wait_forever", "--wait"},
    {"ttl_ms", "--ttl"},
    {"grace_ms", "--grace"},
    {"slots", "--slot"},
    {"slot", "--slot"},
    {"token", "--token"},
    {"add", "--add"},
    {"remove", "--remove"},
    {"policy", "--policy"},
    {"all", "--all"},
    {"force", "--force"},
    {"now", "--now"},
    {"held_max", "--held-max"},
    {"expected_revision", "--revision"},
    {"backfill", "--backfill"},
    {"longest_hold_ms", "--longest-hold"},
    {"recall_grace_ms", "--recall-grace"},
    {"permits_per_holder", "--permits-per-holder"},
    {"waiters_max", "--waiters-max"},
    {"page_size", "--rows"},
    {"page_token", "--page-token"},
    {"next_page_token", "--page-token"},
    {"states", "--state"},
    {"start_revision", "--start-revision"},
    {"payload", "--payload"},
    {"content_type", "--content-type"},
    {"delay_ms", "--delay"},
    {"max_attempts", "--max-attempts"},
    {"attempts_unbounded", "--max-attempts"},
    {"traceparent", "--traceparent"},
    {"tickets_max", "--tickets"},
    {"LIMIT_MISMATCH_ADOPT", "--adopt"},
    {"release_on_disconnect", "release on disconnect"},
    {"endpoints", "--server"},
    {"ttl", "--ttl"},
    {"tls", "--tls"},
    {"ca_file", "--ca-file"},
    {"cert_file", "--cert-file"},
    {"key_file", "--key-file"},
    {"server_name", "--server-name"},
    {"token_file", "--token-file"},
};

struct Advice {
  const char* reason;
  const char* option;  // Only for a command that has it; nullptr: for all.
  const char* text;
};

// The first that fits. For a reason that does not stand here the daemon's own advice is shown.
constexpr Advice kAdvice[] = {
    {"UNREACHABLE", nullptr, "does it run there? --server, or SEMCTL_SERVER, says where to look"},
    {"FULL", "--no-wait", "wait with --wait, or try again later"},
    {"HOLDER_CAP", "--no-wait", "release a permit of this holder first, or wait with --wait"},
    {"WAIT_EXPIRED", "--wait", "wait longer with --wait, or try again later"},
    {"LIMIT_MISMATCH", "--adopt",
     "give its own limit, take it as it is with --adopt, or change it: semctl resize"},
    {"EXCEEDS_LIMIT", "--permits", "ask for fewer --permits, or raise the limit: semctl resize"},
    {"PAUSED", "--no-wait", "wait with --wait until it is resumed: semctl resume"},
    {"NO_SUCH_SEMAPHORE", "--adopt", "give --limit to create it"},
    {"NO_SUCH_SEMAPHORE", nullptr, "semctl list shows those that exist"},
    {"NO_SUCH_TICKET", nullptr, "semctl tickets, and semctl dead-letters, show those that exist"},
    {"IN_USE", "--force", "drain it first, or destroy it with --wait or --force"},
    {"WOULD_OVERSHOOT", "--policy", "choose --policy wait or --policy recall"},
    {"REVISION_MISMATCH", nullptr, "look with semctl describe, and decide again"},
    {"ALREADY_EXISTS", nullptr, "change it: semctl resize, semctl configure"},
    {"BELONGS_TO_SESSION", nullptr, "the program that holds it keeps it alive by itself"},
    {"NOT_HELD", nullptr, "take a new one: semctl acquire"},
    {"INVALID_FIELD", nullptr, ""},
    {"SESSION_LOST", nullptr, ""},
};

absl::string_view LastPart(absl::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? path : path.substr(dot + 1);
}

// "must be 1000 to 86400000, not 5": the numbers as durations.
std::string WithDurations(absl::string_view text) {
  std::string shown;
  while (!text.empty()) {
    std::size_t end = 0;
    while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
    std::int64_t ms = 0;
    if (end > 0 && absl::SimpleAtoi(text.substr(0, end), &ms)) {
      absl::StrAppend(&shown, FormatDuration(std::chrono::milliseconds(ms)));
      if (absl::StartsWith(text.substr(end), " ms")) end += 3;
    } else {
      end = std::max<std::size_t>(end, 1);
      absl::StrAppend(&shown, text.substr(0, end));
    }
    text.remove_prefix(end);
  }
  return shown;
}

// `text` with options in the place of fields.
std::string WithOptions(absl::string_view text, const HasOption& has_option) {
  return WithNames(text, [&](absl::string_view word) { return OptionOf(word, has_option); });
}

std::string InLowerCase(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", " "}});
}

}  // namespace

std::string OptionOf(absl::string_view field, const HasOption& has_option) {
  const absl::string_view path = field.substr(0, field.find('['));
  for (const Wording& wording : kWordings) {
    const absl::string_view name = wording.field;
    if (path != name && LastPart(path) != name && !absl::EndsWith(path, absl::StrCat(".", name)))
      continue;
    // A positional of another command may be an option of this one: --semaphore, --prefix.
    const std::string as_option = absl::StrCat("--", name);
    return !absl::StartsWith(wording.option, "-") && has_option(as_option) ? as_option
                                                                           : wording.option;
  }
  return "";
}

std::string MessageOf(const absl::Status& status, const HasOption& has_option) {
  const std::string semaphore = ErrorDetail(status, "semaphore");
  const std::string message(WithoutSemaphore(status));
  const absl::string_view field = FieldOf(message);
  const std::string option = OptionOf(field, has_option);
  // At LIMIT_REACHED the name is that of a setting of the daemon.
  if (!option.empty() && ErrorReason(status) != "LIMIT_REACHED") {
    const absl::string_view rest = absl::string_view(message).substr(field.size());
    const bool is_duration = absl::EndsWith(field, "_ms") || absl::StrContains(rest, " ms");
    const std::string shown = is_duration ? WithDurations(rest) : std::string(rest);
    return absl::StrCat(option, WithOptions(shown, has_option));
  }
  const bool names_it = semaphore.empty() || absl::StrContains(message, semaphore);
  // At UNUSABLE it names things of the engine, which may look like fields.
  const bool names_fields =
      ErrorReason(status) != "LIMIT_REACHED" && ErrorReason(status) != "UNUSABLE";
  const std::string shown = names_fields ? WithOptions(message, has_option) : message;
  return names_it ? shown : absl::StrCat(semaphore, ": ", shown);
}

std::string AdviceOf(const absl::Status& status, const HasOption& has_option) {
  const std::string reason = ErrorReason(status);
  bool known = false;
  for (const Advice& advice : kAdvice) {
    if (reason != advice.reason) continue;
    known = true;
    if (advice.option == nullptr || has_option(advice.option)) return advice.text;
  }
  return known ? "" : WithOptions(ErrorDetail(status, "advice"), has_option);
}

std::string Text(v1::EndCause cause) {
  if (cause == v1::END_CAUSE_UNSPECIFIED) return "";
  return InLowerCase(absl::StripPrefix(v1::EndCause_Name(cause), "END_CAUSE_"));
}

std::string Text(v1::WatchEventKind kind) {
  return InLowerCase(absl::StripPrefix(v1::WatchEventKind_Name(kind), "WATCH_EVENT_KIND_"));
}

std::string Text(v1::WaitReason reason) {
  switch (reason) {
    case v1::WAIT_REASON_FULL:
      return "too few permits are free";
    case v1::WAIT_REASON_BEHIND_LARGER:
      return "an earlier waiter is served first";
    case v1::WAIT_REASON_HOLDER_CAP:
      return "its holder has as many permits as one holder may have";
    case v1::WAIT_REASON_PAUSED:
      return "the semaphore is paused";
    case v1::WAIT_REASON_DESTROYING:
      return "the semaphore is being destroyed";
    case v1::WAIT_REASON_WITHHELD:
      return "the daemon grants nothing here for now";
    case v1::WAIT_REASON_FOREIGN:
      return "another client of the engine is served first";
    default:  // Also of a later version of the daemon.
      return "";
  }
}

}  // namespace semaphore::semctl
