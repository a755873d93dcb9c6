#include "server/web/page_routes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/access/access.h"
#include "server/http/gzip.h"

namespace semaphored::web {
namespace {

// 'sha256-…' of the text of each element of this name, with a blank before it.
std::string Hashes(std::string_view html, std::string_view element) {
  const std::string open = absl::StrCat("<", absl::string_view(element.data(), element.size()));
  const std::string close = absl::StrCat("</", absl::string_view(element.data(), element.size()));
  std::string hashes;
  for (size_t at = html.find(open); at != html.npos; at = html.find(open, at + 1)) {
    const size_t begin = html.find('>', at);
    const size_t end = html.find(close, at);
    if (begin == html.npos || end == html.npos || end < begin) break;
    const AccessPolicy::Digest digest = Sha256(html.substr(begin + 1, end - begin - 1));
    absl::StrAppend(&hashes, " 'sha256-",
                    absl::Base64Escape(absl::string_view(
                        reinterpret_cast<const char*>(digest.data()), digest.size())),
                    "'");
  }
  return hashes.empty() ? " 'none'" : hashes;
}

// One file, as it is served.
struct File {
  std::string type;
  std::string hash;  // Of its text.
  std::shared_ptr<const std::string> plain;
  std::shared_ptr<const std::string> packed;  // Null: it cannot be.
  std::vector<std::pair<std::string, std::string>> headers;
};

// Each form has a tag of its own, as their bytes differ.
std::string TagOf(const File& file, bool packed) {
  return absl::StrCat("\"", file.hash, packed ? "-gzip" : "", "\"");
}

std::shared_ptr<const File> MakeFile(std::string_view text, std::string type,
                                     std::string_view policy) {
  auto file = std::make_shared<File>();
  file->type = std::move(type);
  const AccessPolicy::Digest digest = Sha256(text);
  file->hash =
      absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), 16));
  file->plain = std::make_shared<std::string>(text);
  if (std::string packed = http::Gzip(text); !packed.empty())
    file->packed = std::make_shared<std::string>(std::move(packed));
  // It may be kept, and is asked for again each time.
  file->headers = {{"Cache-Control", "no-cache"}, {"Content-Security-Policy", std::string(policy)}};
  return file;
}

Route::Handler Serving(std::shared_ptr<const File> file) {
  return [file = std::move(file)](const http::Request& request, const Visitor&,
                                  const http::Reply& reply) {
    http::Response response;
    response.content_type = file->type;
    response.headers = file->headers;
    const bool packed = request.takes_gzip && file->packed != nullptr;
    const std::string tag = TagOf(*file, packed);
    response.headers.emplace_back("ETag", tag);
    // It may name several, and proxies make weak ones of them.
    if (request.Header("if-none-match").value_or("").find(tag) != std::string_view::npos) {
      response.status = http::Status::kNotModified;
    } else {
      response.gzip = packed;
      response.body = packed ? file->packed : file->plain;
    }
    reply(std::move(response));
  };
}

}  // namespace

std::string PagePolicy(std::string_view html) {
  return absl::StrCat("default-src 'none'; script-src", Hashes(html, "script"), "; style-src",
                      Hashes(html, "style"),
                      "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

std::vector<Route> PageRoutes() {
  const std::string_view page = EmbeddedFile("page.html");
  const std::string_view api = EmbeddedFile("openapi.json");
  constexpr char kNothing[] = "default-src 'none'; frame-ancestors 'none'";
  std::vector<Route> routes;
  routes.push_back({"/", http::kReads, Route::Kind::kPage,
                    Serving(MakeFile(page, "text/html; charset=utf-8", PagePolicy(page)))});
  routes.push_back({"/openapi.json", http::kReads, Route::Kind::kPage,
                    Serving(MakeFile(api, "application/json", kNothing))});
  return routes;
}

}  // namespace semaphored::web
