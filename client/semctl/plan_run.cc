#include "client/semctl/plan_run.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/admin.h"

namespace semaphore::semctl {
namespace {

using Request = v1::AdministerRequest;
using Response = v1::AdministerResponse;

constexpr std::uint32_t kRowsOfPage = 1'000;
// On most engines every grant raises the revision, so that a busy semaphore takes several attempts.
constexpr std::chrono::seconds kRevisionPatience(20);

absl::StatusOr<v1::SemaphoreInfo> Describe(UnaryCaller* caller, const std::string& name) {
  Request request;
  request.set_semaphore(name);
  request.mutable_describe()->set_page_size(1);
  absl::StatusOr<Response> response = Administer(caller, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_describe()->mutable_semaphore());
}

v1::ResizeSemaphore ResizeOf(const Step& step) {
  v1::ResizeSemaphore resize;
  resize.set_limit(step.to.limit);
  resize.set_policy(step.shrinking.policy);
  if (step.shrinking.grace_ms.has_value())
    resize.set_grace_ms(static_cast<std::uint32_t>(*step.shrinking.grace_ms));
  return resize;
}

Request RequestOf(const Step& step) {
  Request request;
  request.set_semaphore(step.semaphore);
  switch (step.act) {
    case Step::Act::kCreate:
      request.mutable_create()->set_limit(step.to.limit);
      *request.mutable_create()->mutable_settings() = SettingsOf(step.to);
      break;
    case Step::Act::kConfigure:
      *request.mutable_configure()->mutable_settings() = SettingsOf(step.to);
      break;
    case Step::Act::kGrow:
    case Step::Act::kShrink:
      *request.mutable_resize() = ResizeOf(step);
      break;
    case Step::Act::kDestroy:
      request.mutable_destroy()->set_policy(v1::DESTROY_POLICY_REFUSE);
      break;
  }
  return request;
}

// The semaphore as the step left it; nullptr: it is gone.
const v1::SemaphoreInfo* AfterStep(const Step& step, const Response& response) {
  switch (step.act) {
    case Step::Act::kCreate:
      return &response.create().semaphore();
    case Step::Act::kConfigure:
      return &response.configure().semaphore();
    case Step::Act::kGrow:
    case Step::Act::kShrink:
      return &response.resize().semaphore();
    case Step::Act::kDestroy:
      return nullptr;
  }
  return nullptr;
}

// The revision to go on from after a mismatch. ABORTED: it is another semaphore than was planned
// for.
absl::StatusOr<std::uint64_t> RevisionAgain(UnaryCaller* caller, const Step& step) {
  const absl::StatusOr<v1::SemaphoreInfo> info = Describe(caller, step.semaphore);
  if (!info.ok()) return info.status();
  if (DefinitionOf(*info) == step.from && !info->destroying()) return info->revision();
  return absl::AbortedError(
      absl::StrCat(step.semaphore, ": another client has changed it meanwhile; run semctl diff"));
}

// What is not the revision's fault is returned.
absl::StatusOr<Response> RunStep(UnaryCaller* caller, const Step& step, std::uint64_t revision) {
  const TimePoint until = BootClock::now() + kRevisionPatience;
  while (true) {
    Request request = RequestOf(step);
    if (step.act != Step::Act::kCreate) request.set_expected_revision(revision);
    absl::StatusOr<Response> response = Administer(caller, request);
    if (response.ok()) return response;
    const std::string reason = ErrorReason(response.status());
    if (reason == "NOT_SUPPORTED" && revision != 0) {
      // An engine that keeps no revisions: then the last look is all that we go by.
      const absl::StatusOr<std::uint64_t> again = RevisionAgain(caller, step);
      if (!again.ok()) return again.status();
      revision = 0;
      continue;
    }
    if (reason != "REVISION_MISMATCH" || BootClock::now() >= until) return response;
    const absl::StatusOr<std::uint64_t> again = RevisionAgain(caller, step);
    if (!again.ok()) return again.status();
    revision = *again;
  }
}

}  // namespace

absl::StatusOr<Semaphores> ReadAll(UnaryCaller* caller, const std::string& prefix) {
  Semaphores all;
  Request request;
  request.mutable_list()->set_prefix(prefix);
  request.mutable_list()->set_page_size(kRowsOfPage);
  while (true) {
    absl::StatusOr<Response> page = Administer(caller, request);
    if (!page.ok()) return page.status();
    for (v1::SemaphoreInfo& info : *page->mutable_list()->mutable_semaphores()) {
      const std::string name = info.semaphore();
      all[name] = std::move(info);
    }
    if (page->list().next_page_token().empty()) return all;
    request.mutable_list()->set_page_token(page->list().next_page_token());
  }
}

absl::StatusOr<Semaphores> ReadCurrent(UnaryCaller* caller, const Declarations& declared,
                                       bool prune) {
  Semaphores current;
  if (prune) {
    for (const std::string& prefix : declared.prefixes) {
      absl::StatusOr<Semaphores> covered = ReadAll(caller, prefix);
      if (!covered.ok()) return covered.status();
      current.merge(*covered);
    }
  }
  for (const auto& [name, unused] : declared.semaphores) {
    absl::StatusOr<v1::SemaphoreInfo> info = Describe(caller, name);
    if (info.ok()) {
      current[name] = *std::move(info);
    } else if (info.status().code() != absl::StatusCode::kNotFound) {
      return info.status();
    }
  }
  return current;
}

absl::Status RunSteps(UnaryCaller* caller, const Plan& plan, Semaphores* current,
                      const std::function<void(const Step&)>& on_done, std::size_t* done) {
  *done = 0;
  for (const Step& step : plan.steps) {
    const auto stands = current->find(step.semaphore);
    const std::uint64_t revision = stands == current->end() ? 0 : stands->second.revision();
    const absl::StatusOr<Response> response = RunStep(caller, step, revision);
    if (!response.ok()) return response.status();
    if (const v1::SemaphoreInfo* after = AfterStep(step, *response))
      (*current)[step.semaphore] = *after;
    ++*done;
    on_done(step);
  }
  return absl::OkStatus();
}

}  // namespace semaphore::semctl
