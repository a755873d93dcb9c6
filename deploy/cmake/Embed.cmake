# Writes OUTPUT, a C++ file with semaphored::web::EmbeddedFile(): the text of each of FILES, "NAME=PATH".
set(arrays "")
set(cases "")
set(number 0)
foreach(file IN LISTS FILES)
  string(REGEX REPLACE "=.*" "" name "${file}")
  string(REGEX REPLACE "^[^=]*=" "" path "${file}")
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {\n${hex}0};\n")
  string(APPEND cases "  if (name == \"${name}\")\n    return {reinterpret_cast<const char*>(kFile${number}), sizeof kFile${number} - 1};\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"server/web/page_routes.h\"

namespace semaphored::web {
namespace {

${arrays}
}  // namespace

std::string_view EmbeddedFile(std::string_view name) {
${cases}  return {};
}

}  // namespace semaphored::web
")
