#include <fmt/format.h>
#include <sqlite3.h>

#include <cassert>
#include <cerrno>
#include <hyperframes/apps/ps/detail/database.hpp>
#include <hyperframes/runtime/error.hpp>
#include <utility>

namespace hyperframes::ps::detail {
namespace {

constexpr int busy_timeout_ms = 3000;  // a predecessor may still be ending

std::error_code code_for(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL: return {ENOSPC, std::generic_category()};
    case SQLITE_CANTOPEN: return {ENOENT, std::generic_category()};
    case SQLITE_READONLY:
    case SQLITE_PERM: return {EACCES, std::generic_category()};
    case SQLITE_IOERR: return {EIO, std::generic_category()};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return make_error_code(Errc::corrupt);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return make_error_code(Errc::rejected);
    default: return make_error_code(Errc::internal);
  }
}

std::string_view remedy_for(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL: return "free some space on that disk; nothing that was answered is lost";
    case SQLITE_CANTOPEN: return "create its folder, or choose another one";
    case SQLITE_READONLY:
    case SQLITE_PERM: return "make the file and its folder writable for this user";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return "restore it from a copy, or move it away to begin anew";
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return "stop the other process that has it open, or use another folder";
    default: return "";
  }
}

}  // namespace

Database::Query::Query(Database& database, sqlite3_stmt* statement) noexcept
    : database_(&database), statement_(statement) {}

Database::Query::Query(Query&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}

Database::Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

bool Database::Query::next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->fail(code, sqlite3_sql(statement_));
  return false;
}

std::int64_t Database::Query::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}
double Database::Query::real(int column) const { return sqlite3_column_double(statement_, column); }
bool Database::Query::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::string Database::Query::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text == nullptr ? std::string()
                         : std::string(text, sqlite3_column_bytes(statement_, column));
}

std::vector<std::byte> Database::Query::blob(int column) const {
  const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
  return bytes == nullptr
             ? std::vector<std::byte>()
             : std::vector<std::byte>(bytes, bytes + sqlite3_column_bytes(statement_, column));
}

Database::Database(std::string path, const char* files) : path_(std::move(path)) {
  const int code =
      sqlite3_open_v2(path_.c_str(), &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, files);
  try {
    check(code, "open it");
    sqlite3_extended_result_codes(handle_, 1);
    sqlite3_busy_timeout(handle_, busy_timeout_ms);
    // Exclusive: two coordinators on one database would each believe to be the only one.
    execute(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "BEGIN IMMEDIATE; COMMIT");
  } catch (...) {
    sqlite3_close(handle_);
    throw;
  }
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

void Database::execute(const char* sql) {
  check(sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr), sql);
}

std::uint32_t Database::last_id() const {
  return static_cast<std::uint32_t>(sqlite3_last_insert_rowid(handle_));
}
bool Database::in_transaction() const noexcept { return sqlite3_get_autocommit(handle_) == 0; }
std::uint64_t Database::changes() const noexcept {
  return static_cast<std::uint64_t>(sqlite3_changes(handle_));
}

sqlite3_stmt* Database::prepare(std::string_view sql) {
  const auto found = statements_.find(std::string(sql));
  if (found != statements_.end()) {
    assert(sqlite3_stmt_busy(found->second) == 0 && "a query is not repeated while it runs");
    return found->second;
  }
  sqlite3_stmt* statement = nullptr;
  check(sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                           SQLITE_PREPARE_PERSISTENT, &statement, nullptr),
        sql);
  statements_.emplace(sql, statement);
  return statement;
}

void Database::bind(sqlite3_stmt* statement, int index, std::int64_t value) {
  check(sqlite3_bind_int64(statement, index, value), sqlite3_sql(statement));
}
void Database::bind(sqlite3_stmt* statement, int index, double value) {
  check(sqlite3_bind_double(statement, index, value), sqlite3_sql(statement));
}
void Database::bind(sqlite3_stmt* statement, int index, std::string_view value) {
  // A null pointer would bind NULL.
  const char* text = value.empty() ? "" : value.data();
  check(sqlite3_bind_text(statement, index, text, static_cast<int>(value.size()), SQLITE_TRANSIENT),
        sqlite3_sql(statement));
}
void Database::bind(sqlite3_stmt* statement, int index, std::span<const std::byte> value) {
  check(sqlite3_bind_blob(statement, index, value.data(), static_cast<int>(value.size()),
                          SQLITE_TRANSIENT),
        sqlite3_sql(statement));
}

void Database::check(int code, std::string_view tried) const {
  if (code != SQLITE_OK) fail(code, tried);
}

void Database::fail(int code, std::string_view tried) const {
  const char* found = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  throw Error(code_for(code),
              fmt::format("work with the coordinator's database '{}' ({})", path_, tried), found,
              std::string(remedy_for(code)));
}

}  // namespace hyperframes::ps::detail
