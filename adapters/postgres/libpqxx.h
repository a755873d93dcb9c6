// What libpqxx 6 (Debian 12) and libpqxx 7 (Debian 13) say in different words. No other file asks for
// the version. All of it throws what libpqxx throws.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <pqxx/pqxx>

namespace semaphored::postgres {

#if PQXX_VERSION_MAJOR < 7

// It ends with its connection, and is not connected again behind our back.
inline void KeepEnded(pqxx::connection* connection) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  connection->inhibit_reactivation(true);
#pragma GCC diagnostic pop
}

inline void Disconnect(pqxx::connection* connection) { connection->disconnect(); }

// nullopt: NULL.
inline pqxx::result RunPrepared(pqxx::nontransaction* work, const std::string& name,
                                const std::vector<std::optional<std::string>>& arguments) {
  std::vector<const char*> texts;
  texts.reserve(arguments.size());
  for (const auto& argument : arguments) texts.push_back(argument ? argument->c_str() : nullptr);
  return work->exec_prepared(name, pqxx::prepare::make_dynamic_params(texts));
}

// Listens from its construction on. `received` gets the payloads, in get_notifs().
class Receiver : public pqxx::notification_receiver {
 public:
  Receiver(pqxx::connection* connection, const std::string& channel,
           std::vector<std::string>* received)
      : notification_receiver(*connection, channel), received_(received) {}
  void operator()(const std::string& payload, int) override { received_->push_back(payload); }

 private:
  std::vector<std::string>* received_;
};

#else

inline void KeepEnded(pqxx::connection*) {}

inline void Disconnect(pqxx::connection* connection) { connection->close(); }

inline pqxx::result RunPrepared(pqxx::nontransaction* work, const std::string& name,
                                const std::vector<std::optional<std::string>>& arguments) {
  pqxx::params values;
  values.reserve(arguments.size());
  for (const auto& argument : arguments) {
    if (argument) {
      values.append(pqxx::zview(*argument));
    } else {
      values.append();
    }
  }
  return work->exec(pqxx::prepped(name), values);
}

class Receiver {
 public:
  Receiver(pqxx::connection* connection, const std::string& channel,
           std::vector<std::string>* received) {
    connection->listen(channel, [received](const pqxx::notification& notification) {
      received->emplace_back(notification.payload);
    });
  }
};

#endif

}  // namespace semaphored::postgres
