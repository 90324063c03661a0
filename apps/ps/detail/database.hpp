// SQLite behind a few calls that throw this project's errors.
//
//   detail::Database database("coordinator.db");
//   database.run("INSERT INTO servers VALUES (?, ?)", name, node_id);
//   for (auto row = database.query("SELECT name FROM servers"); row.next();) use(row.text(0));
//
// Blocking, and one thread at a time: for an offload executor. Unsigned 64-bit numbers are kept as
// their two's complement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace hyperframes::ps::detail {

class Database {
 public:
  /// A statement that runs. It goes back to the database when it is destroyed.
  class Query {
   public:
    Query(Query&& other) noexcept;
    Query& operator=(Query&&) = delete;
    ~Query();
    /// Moves on to the next row; false after the last.
    bool next();
    std::int64_t integer(int column) const;
    std::uint64_t natural(int column) const { return static_cast<std::uint64_t>(integer(column)); }
    std::uint32_t number(int column) const { return static_cast<std::uint32_t>(integer(column)); }
    double real(int column) const;
    std::string text(int column) const;
    std::vector<std::byte> blob(int column) const;
    bool is_null(int column) const;

   private:
    friend class Database;
    Query(Database& database, sqlite3_stmt* statement) noexcept;
    Database* database_;
    sqlite3_stmt* statement_;
  };

  /// Opens or creates it, for this process alone; every commit is synced. Throws `rejected` while
  /// another process has it open, `corrupt` for a file that is no database.
  /// `files`: the SQLite VFS that it lies in; null: SQLite's own.
  explicit Database(std::string path, const char* files = nullptr);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  template <class... Values>
  Query query(std::string_view sql, const Values&... values) {
    Query query(*this, prepare(sql));
    int index = 0;
    (bind(query.statement_, ++index, values), ...);
    return query;
  }
  /// Runs it to its end; returns how many rows it changed.
  template <class... Values>
  std::uint64_t run(std::string_view sql, const Values&... values) {
    Query running = query(sql, values...);
    while (running.next()) {
    }
    return changes();
  }
  /// Several statements at once, without values.
  void execute(const char* sql);
  /// The number that the last insert gave.
  std::uint32_t last_id() const;
  bool in_transaction() const noexcept;
  const std::string& path() const noexcept { return path_; }

 private:
  sqlite3_stmt* prepare(std::string_view sql);
  void bind(sqlite3_stmt* statement, int index, std::int64_t value);
  void bind(sqlite3_stmt* statement, int index, double value);
  void bind(sqlite3_stmt* statement, int index, std::string_view value);
  void bind(sqlite3_stmt* statement, int index, const std::string& value) {
    bind(statement, index, std::string_view(value));
  }
  void bind(sqlite3_stmt* statement, int index, std::span<const std::byte> value);
  void bind(sqlite3_stmt* statement, int index, const std::vector<std::byte>& value) {
    bind(statement, index, std::span<const std::byte>(value));
  }
  template <class Integer>
    requires std::is_integral_v<Integer>
  void bind(sqlite3_stmt* statement, int index, Integer value) {
    bind(statement, index, static_cast<std::int64_t>(value));
  }
  std::uint64_t changes() const noexcept;
  void check(int code, std::string_view tried) const;
  [[noreturn]] void fail(int code, std::string_view tried) const;

  std::string path_;
  sqlite3* handle_ = nullptr;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;  // prepared once
};

}  // namespace hyperframes::ps::detail
