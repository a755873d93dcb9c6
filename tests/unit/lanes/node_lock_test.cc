#include "server/lanes/node_lock.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace semaphored {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

class LockFolder {
 public:
  LockFolder() {
    std::string pattern = (fs::temp_directory_path() / "semaphored-lock-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~LockFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  LockFolder(const LockFolder&) = delete;
  LockFolder& operator=(const LockFolder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("node lock: the next life knows that the former has ended, and not before") {
  LockFolder folder;
  std::optional<NodeLock> former;
  former.emplace(std::vector{folder.string()}, "lock");
  const LockIdentity of_former = former->Claim();
  CHECK(former->trouble().empty());
  REQUIRE(of_former.inode != 0);
  CHECK(of_former.nonce.size() == 32);
  NodeLock next({folder.string()}, "lock");
  CHECK_FALSE(next.HasEnded(of_former));
  CHECK_THAT(next.trouble(), ContainsSubstring("another process has"));
  former.reset();
  CHECK(next.HasEnded(of_former));
  CHECK(next.trouble().empty());
  const LockIdentity of_next = next.Claim();
  CHECK(of_next.inode == of_former.inode);
  CHECK(of_next.nonce != of_former.nonce);
  CHECK_FALSE(NodeLock({folder.string()}, "lock").HasEnded(of_next));
}

TEST_CASE("node lock: another file, or one of another life, machine or boot, proves nothing") {
  LockFolder folder;
  LockIdentity former = NodeLock({folder.string()}, "lock").Claim();
  SECTION("removed") { fs::remove(folder / "lock"); }
  SECTION("replaced by a copy") {
    fs::copy_file(folder / "lock", folder / "copy");
    fs::rename(folder / "copy", folder / "lock");
  }
  SECTION("another nonce") { std::ofstream(folder / "lock") << std::string(32, 'a'); }
  SECTION("emptied") { std::ofstream(folder / "lock").close(); }
  SECTION("another device") { ++former.device; }
  SECTION("another inode") { ++former.inode; }
  SECTION("another boot") { former.boot += "1"; }
  SECTION("a daemon without a lock") { former.inode = 0; }
  SECTION("no nonce") { former.nonce.clear(); }
  CHECK_FALSE(NodeLock({folder.string()}, "lock").HasEnded(former));
}

TEST_CASE("node lock: without a lock a life still draws a nonce") {
  const NodeLock none({}, "lock");
  CHECK(none.path().empty());
  LockFolder folder;
  NodeLock holder({folder.string()}, "lock");
  REQUIRE(holder.Claim().inode != 0);
  NodeLock second({folder.string()}, "lock");
  const LockIdentity of_second = second.Claim();
  CHECK(of_second.inode == 0);
  CHECK(of_second.nonce.size() == 32);
}

TEST_CASE("node lock: a folder that is another's, or not its own, is passed over") {
  LockFolder folder;
  const fs::path bad = folder / "bad";
  std::string why;
  SECTION("a symbolic link") {
    fs::create_directory(folder / "there");
    fs::create_directory_symlink(folder / "there", bad);
    why = "Not a directory";
  }
  SECTION("a file") {
    std::ofstream(bad).close();
    why = "Not a directory";
  }
  SECTION("writable by others") {
    fs::create_directory(bad);
    REQUIRE(chmod(bad.c_str(), 0777) == 0);
    why = "other users may write in it";
  }
  SECTION("its parent is missing") {
    REQUIRE_FALSE(fs::exists(folder / "missing"));
    NodeLock lock({(folder / "missing/below").string()}, "lock");
    CHECK(lock.path().empty());
    CHECK_THAT(lock.trouble(), ContainsSubstring("No such file"));
    return;
  }
  SECTION("another user's") {
    if (geteuid() != 0) return;
    fs::create_directory(bad);
    REQUIRE(chown(bad.c_str(), 1, 1) == 0);
    why = "it belongs to another user";
  }
  SECTION("the file is a symbolic link") {
    fs::create_directory(bad);
    fs::create_symlink(folder / "elsewhere", bad / "lock");
    why = "Too many levels of symbolic links";
  }
  SECTION("the file is a pipe") {
    fs::create_directory(bad);
    REQUIRE(mkfifo((bad / "lock").c_str(), 0600) == 0);
    why = "is no file";
  }
  NodeLock refused({bad.string()}, "lock");
  CHECK(refused.path().empty());
  CHECK_THAT(refused.trouble(), ContainsSubstring(why));
  CHECK(refused.Claim().inode == 0);
  NodeLock lock({bad.string(), (folder / "good").string()}, "lock");
  CHECK(lock.path() == folder / "good/lock");
  CHECK(lock.Claim().inode != 0);
  CHECK((fs::status(folder / "good").permissions() & fs::perms::all) == fs::perms::owner_all);
  CHECK_FALSE(fs::exists(folder / "elsewhere"));
}

TEST_CASE("node lock: a folder in which no file can be made is passed over") {
  const NodeLock lock({"/proc"}, "lock");
  CHECK(lock.path().empty());
  CHECK_FALSE(lock.trouble().empty());
}

TEST_CASE("node lock: where it may lie, and what it is called") {
  const std::string own = "/tmp/semaphored-" + std::to_string(geteuid());
  CHECK(LockFolders({}) == std::vector{own});
  CHECK(LockFolders({{"XDG_RUNTIME_DIR", "/run/user/7"},
                     {"STATE_DIRECTORY", "/s:/t"},
                     {"RUNTIME_DIRECTORY", "/r:/q"},
                     {"HOME", "/h"}}) ==
        std::vector<std::string>{"/r", "/s", "/run/user/7/semaphored", own});
  CHECK(LockFolders({{"RUNTIME_DIRECTORY", ""}, {"XDG_RUNTIME_DIR", "here"}}) == std::vector{own});
  CHECK(LockName("a", "postgres://db/x") == LockName("a", "postgres://db/x"));
  CHECK(LockName("a", "postgres://db/x") != LockName("b", "postgres://db/x"));
  CHECK(LockName("a", "postgres://db/x") != LockName("a", "postgres://db/y"));
}

}  // namespace semaphored
