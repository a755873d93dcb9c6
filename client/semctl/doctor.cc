// semctl doctor: whether this client and its daemons fit together.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/semctl/context.h"
#include "client/semctl/duration.h"
#include "client/semctl/examination.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

const char* Word(Grade grade) {
  switch (grade) {
    case Grade::kOk:
      return "ok";
    case Grade::kWarn:
      return "warn";
    case Grade::kFail:
      return "fail";
  }
  return "";
}

// What only all of them together show.
class Comparison {
 public:
  explicit Comparison(const std::vector<Examination>& examined) {
    for (const Examination& each : examined) {
      if (each.daemon) daemons_.push_back(&each);
    }
  }

  Findings Run() {
    if (daemons_.size() < 2) return {};
    for (std::size_t i = 0; i < daemons_.size(); ++i) {
      for (std::size_t j = i + 1; j < daemons_.size(); ++j) Compare(*daemons_[i], *daemons_[j]);
    }
    if (findings_.empty())
      Add("nodes", Grade::kOk,
          absl::StrCat(daemons_.size(), " daemons, each with a node id of its own"), "");
    return std::move(findings_);
  }

 private:
  void Add(const char* check, Grade grade, std::string message, std::string advice) {
    findings_.push_back({"", check, grade, std::move(message), std::move(advice)});
  }

  void Compare(const Examination& a, const Examination& b) {
    const std::string both = absl::StrCat(a.endpoint, " and ", b.endpoint);
    if (a.daemon->instance() == b.daemon->instance()) {
      return Add(
          "nodes", Grade::kWarn, absl::StrCat(both, " are the same daemon"),
          "name each daemon once: a client that cannot reach it tries the other endpoint in vain");
    }
    if (a.daemon->node_id() == b.daemon->node_id()) {
      Add("nodes", Grade::kFail,
          absl::StrCat(both, " have the same node id '", a.daemon->node_id(), "'"),
          "give each daemon a node_id of its own");
    }
    if (a.daemon->engine() != b.daemon->engine() || !a.daemon->shared_engine()) {
      Add("nodes", Grade::kFail,
          absl::StrCat(both, " do not share an engine: their semaphores are others"),
          "list only daemons of one engine in --server");
    }
    if (a.daemon->version() != b.daemon->version()) {
      Add("version", Grade::kWarn,
          absl::StrCat(both, " differ: ", a.daemon->version(), " and ", b.daemon->version()),
          "end the upgrade; docs/compatibility.md says which go together");
    }
  }

  std::vector<const Examination*> daemons_;
  Findings findings_;
};

Findings ExamineAll(const Context& context, const std::shared_ptr<Transport>& transport,
                    milliseconds timeout, bool* reached) {
  const std::vector<std::string> endpoints = context.endpoints();
  std::vector<Examination> examined(endpoints.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      threads.emplace_back([&, i] {
        examined[i] = Examine({endpoints[i], context.security, timeout}, transport);
      });
    }
  }
  Findings all;
  for (const Examination& each : examined) {
    all.insert(all.end(), each.findings.begin(), each.findings.end());
    *reached = *reached || each.reached;
  }
  const Findings more = Comparison(examined).Run();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void PrintText(const Findings& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.endpoint.size());
  for (const Finding& finding : findings) {
    PrintLine(absl::StrFormat("%-4s  %-*s  %-7s  %s%s%s", Word(finding.grade),
                              static_cast<int>(width),
                              finding.endpoint.empty() ? "all" : finding.endpoint, finding.check,
                              finding.message, finding.advice.empty() ? "" : "; ", finding.advice));
  }
}

void PrintAll(const Findings& findings, Grade worst) {
  Json json = {{"worst", Word(worst)}, {"checks", Json::array()}};
  for (const Finding& finding : findings) {
    json["checks"].push_back({{"endpoint", finding.endpoint},
                              {"check", finding.check},
                              {"grade", Word(finding.grade)},
                              {"message", finding.message},
                              {"advice", finding.advice}});
  }
  PrintJson(json);
}

int Doctor(const Context& context, milliseconds timeout) {
  const absl::StatusOr<std::shared_ptr<Transport>> transport = context.MakeTransport();
  if (!transport.ok()) return context.Fail(transport.status());
  bool reached = false;
  const Findings findings = ExamineAll(context, *transport, timeout, &reached);
  Grade worst = Grade::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.grade);
  if (context.json()) {
    PrintAll(findings, worst);
  } else {
    PrintText(findings);
  }
  if (worst == Grade::kOk) return kDone;
  if (worst == Grade::kWarn) return kNo;
  return reached ? kRefused : kUnreachable;
}

}  // namespace

void AddDoctorCommand(Command app, Context& context) {
  auto timeout = std::make_shared<milliseconds>(5'000);
  const Command doctor =
      AddCommand(app, context, "doctor", "Check that this client and its daemons fit together",
                 R"(  semctl doctor
  semctl doctor --server 127.0.0.1:7420 --timeout 2s
  semctl doctor -o json

One line for each check: ok, warn or fail, and what to do. Of each endpoint: reach (a connection),
tls (the certificates, and for how many days they are good), rights (what the token or certificate
allows), clock (how far the daemon's clocks differ), engine (whether the daemon's engine answers, and how
fast), version; of all together: nodes (node ids, one engine).

Exit codes:
  0    every check is ok
  1    a check warns, and none fails
  119  a check fails
  123  no daemon was reached)",
                 [&context, timeout] { return Doctor(context, *timeout); });
  doctor.AddDuration("--timeout", timeout.get(), "For each step at each endpoint [5s]")
      .Check([](const std::string& text) {
        return std::string(ParseDuration(text) == milliseconds(0) ? "must be 1ms or more" : "");
      });
}

}  // namespace semaphore::semctl
