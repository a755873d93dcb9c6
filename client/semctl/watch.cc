// semctl watch: what happens to semaphores, line by line.
#include <time.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

void PrintEvent(const v1::WatchResponse& event) {
  std::string line = absl::StrCat(FormatTime(event.time()), "  ", Text(event.kind()), "  ",
                                  event.semaphore().semaphore());
  if (event.slots_size() > 0) absl::StrAppend(&line, "  slots ", SlotsText(event.slots()));
  if (event.token() > 0) absl::StrAppend(&line, "  token ", event.token());
  if (!event.holder().empty()) absl::StrAppend(&line, "  by ", event.holder());
  if (event.cause() != v1::END_CAUSE_UNSPECIFIED) {
    absl::StrAppend(&line, "  ", Text(event.cause()));
  }
  absl::StrAppend(&line, "  (", Summary(event.semaphore()), ")");
  PrintLine(line);
}

int Watch(const Context& context, const v1::WatchRequest& request, std::uint64_t events_max) {
  std::uint64_t seen = 0;
  const absl::Status status = context.MakeCaller().Call(
      [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* call) {
        const auto reader = stub.Watch(call, request);
        v1::WatchResponse event;
        while (reader->Read(&event)) {
          if (context.json()) {
            PrintJson(ToJson(event));
          } else {
            PrintEvent(event);
          }
          const bool read_on = std::fflush(stdout) == 0;  // Else the reader is gone.
          if (!read_on || (events_max > 0 && ++seen >= events_max)) {
            call->TryCancel();
            reader->Finish();
            return grpc::Status::OK;
          }
        }
        return reader->Finish();
      },
      std::chrono::milliseconds(-1));
  return status.ok() ? kDone : context.Fail(status);
}

}  // namespace

void AddWatchCommand(Command app, Context& context) {
  auto request = std::make_shared<v1::WatchRequest>();
  auto events_max = std::make_shared<std::uint64_t>(0);
  const Command watch =
      AddCommand(app, context, "watch", "What happens to semaphores, as it happens",
                 "  semctl watch\n  semctl watch team/ -o json\n  semctl watch --semaphore team/db "
                 "--events 10",
                 [&context, request, events_max] { return Watch(context, *request, *events_max); });
  const Option prefix = watch.Add("PREFIX", request->mutable_prefix(), "Names that begin with this")
                            .Takes(kTakesPrefix);
  const Option name = watch.Add("--semaphore", request->mutable_semaphore(), "Only this one")
                          .Takes(kTakesSemaphore)
                          .Excludes(prefix);
  watch
      .AddSetter<std::uint64_t>(
          "--start-revision",
          [request](std::uint64_t revision) { request->set_start_revision(revision); },
          "No snapshot if the semaphore still stands at this revision")
      .Needs(name);
  watch.Add("--events", events_max.get(), "End after so many [never]");
}

}  // namespace semaphore::semctl
