// Whether a request may come from a page of another site. A browser on a machine that reaches the daemon sends what
// any site has caused, with no more rights than to reach the port; so that has to be told apart from what people ask.
// Pure functions of the head of a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/reason.h"
#include "server/http/message.h"

namespace semaphored::web {

// A header that no form of another site can send, and no script without leave, which nothing gives: needed where a
// cookie stands for a token, and to sign in.
inline constexpr char kOwnPageHeader[] = "x-semaphored";

// The host of `Host` or of an origin's rest, in lower case and without its port: "[::1]". Empty: it is none.
std::string HostOf(std::string_view authority);
// Numbers, or localhost: a name that is looked up anywhere cannot be one of these, so a site cannot have the browser
// take the daemon for itself (DNS rebinding).
bool IsOwnHost(std::string_view host);

// Refused: PERMISSION_DENIED. Host must be one of ours or of `hosts`; Origin, if there is one, must be the same; and a
// browser that says where the request comes from must say: from here. `by_tls`: an Origin without TLS is another site, which
// a machine on the way can make up. `opens_page`: a link on another site may lead here.
std::optional<Refusal> CheckSite(const http::Request& request,
                                 const std::vector<std::string>& hosts, bool by_tls,
                                 bool opens_page);

// A browser says where a request comes from that may change something. False: it is a program's.
bool IsFromBrowser(const http::Request& request);

// "application/json; charset=utf-8" is "application/json". Empty: there is none.
std::string MediaTypeOf(const http::Request& request);

// The value of the cookie; nullopt: it is not there.
std::optional<std::string> CookieOf(const http::Request& request, std::string_view name);

}  // namespace semaphored::web
