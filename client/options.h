// Where a server is and how a caller shows who it is.
#ifndef HEDDLE_CLIENT_OPTIONS_H_
#define HEDDLE_CLIENT_OPTIONS_H_

#include <string>

namespace heddle::client {

struct ConnectOptions {
  // "unix:PATH" or "HOST:PORT".
  std::string server;
  // TLS is used where one of these is given; PEM files, read again for every new connection, so
  // that they can be replaced while a program runs.
  std::string ca_file;              // who may sign for the server; empty = the system's authorities
  std::string cert_file, key_file;  // for servers that ask callers for a certificate: mutual TLS
  bool tls = false;                 // TLS with none of the files above
  // The name in the server's certificate where it is not the one in `server`; empty = it is.
  std::string tls_name;
  // Holds a bearer token, and nothing else but white space; read for every connection.
  std::string token_file;

  bool uses_tls() const {
    return tls || !ca_file.empty() || !cert_file.empty() || !tls_name.empty();
  }
};

}  // namespace heddle::client

#endif  // HEDDLE_CLIENT_OPTIONS_H_
