"""A Kubernetes API server for tests, as its published OpenAPI and API conventions say: Jobs and pods of a namespace,
resource versions, lists in pages, watches that are lost, forgotten (410) or told where they are (bookmarks), conflicts,
deletion in the foreground with a finalizer, tokens, roles (403) and requests for patience (429 with Retry-After).

What a test wants to go wrong is an attribute of ApiServer. `kill` is called at the step that `fault` names, as in
"create before" or "delete after": the caller then gets no answer."""

import copy
import datetime
import http.server
import json
import re
import ssl
import threading
import time
import urllib.parse
import uuid

NAMESPACE = "heddle"
GROUPS = {"jobs": ("batch", "/apis/batch/v1"), "pods": ("", "/api/v1")}
PATH = re.compile(rf"(/api/v1|/apis/batch/v1)/namespaces/{NAMESPACE}/(jobs|pods)(?:/([^/]+))?$")
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
           422: "Invalid", 429: "TooManyRequests", 500: "InternalError"}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def status(code, message, reason=None):
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason or REASONS[code], "code": code}


def rules_of(manifest):
    """{(resource, verb)} of the Role in a manifest, which is written with lists in one line."""
    with open(manifest) as text:
        found = re.findall(r"apiGroups: \[(.*)\]\n +resources: \[(.*)\]\n +verbs: \[(.*)\]", text.read())
    allowed = set()
    for group, resource, verbs in found:
        assert GROUPS[resource][0] == group.strip('"'), (group, resource)
        allowed |= {(resource, verb) for verb in verbs.split(", ")}
    return allowed


class Refused(Exception):
    def __init__(self, code, message, reason=None):
        super().__init__(message)
        self.code, self.body = code, status(code, message, reason)


class ApiServer:
    def __init__(self, allowed, token=None, certificate=None):
        self.allowed, self.token = allowed, token
        self.change = threading.Condition(threading.RLock())
        self.version, self.oldest = 1000, 0
        self.objects = {"jobs": {}, "pods": {}}
        self.events, self.history = [], []  # (version, resource, type, object); what is remembered, and all
        self.watches = 0  # are of this generation
        self.calls, self.used = [], set()
        self.bodies, self.answers = [], []  # for schemas
        self.fault, self.kill = "", None
        self.patience = 0  # requests that are to come later
        self.page = 500
        self.refusals = []  # of the next deletions
        self.unwanted = []  # of the next objects: codes and messages
        self.gone_as_event = False
        self.silent = False  # watches tell nothing yet
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                api.answer(self)

            do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = handle_one

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # a caller that was killed

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{certificate}.pem", f"{certificate}.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.lose_watches()
        self.server.shutdown()
        self.server.server_close()

    # ------------------------------------------------------------------------------------ storage, under `change`

    def store(self, resource, kind, each):
        """Writes an object, or its end ("DELETED"), and tells of it."""
        self.version += 1
        each["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            del self.objects[resource][each["metadata"]["name"]]
        else:
            self.objects[resource][each["metadata"]["name"]] = each
        self.history.append((self.version, resource, kind, copy.deepcopy(each)))
        self.events.append(self.history[-1])
        self.change.notify_all()

    def make(self, resource, each):
        each["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "namespace": NAMESPACE}
        self.store(resource, "ADDED", each)

    # ----------------------------------------------------------------------------------------------- what goes wrong

    def lose_watches(self):
        with self.change:
            self.watches += 1
            self.change.notify_all()

    def forget(self):
        """Of what was, only the present is known: whoever watches from an earlier version has to list."""
        with self.change:
            self.version += 1
            self.events, self.oldest = [], self.version
        self.lose_watches()

    # ----------------------------------------------------------------------------------------------------- requests

    def answer(self, http_request):
        body = http_request.rfile.read(int(http_request.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(http_request.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
        code, answer, headers = 200, None, {}
        killed = False
        try:
            found = PATH.match(url.path)
            if not found or GROUPS[found[2]][1] != found[1]:
                raise Refused(404, "the server could not find the requested resource")
            resource, name = found[2], found[3]
            verb = {"GET": "get" if name else "watch" if query.get("watch") == "true" else "list", "POST": "create",
                    "DELETE": "delete" if name else "deletecollection"}[http_request.command]
            with self.change:
                self.calls.append(verb if resource == "jobs" else f"{resource} {verb}")
                self.check(http_request, resource, verb)
                fault, when = (self.fault.split() + ["", ""])[:2]
                killed = fault == verb and resource == "jobs"
                if killed:
                    self.fault = ""
                if not killed or when == "after":
                    if verb == "watch":
                        if not killed:
                            self.watch(http_request, resource, query)
                            return
                    elif verb == "list":
                        answer = self.list(resource, query)
                    elif verb == "get":
                        answer = self.find(resource, name)
                    elif verb == "create":
                        code, answer = 201, self.create(resource, json.loads(body))
                    else:
                        answer = self.delete(resource, name, json.loads(body or "{}"))
                if killed:
                    self.kill()
                text = json.dumps(answer)
        except Refused as refused:
            code, text = refused.code, json.dumps(refused.body)
            self.answers.append(refused.body)
            if code == 429:
                headers["Retry-After"] = "1"
        if killed:
            http_request.close_connection = True
            return
        http_request.send_response(code)
        for field, value in {"Content-Type": "application/json", "Content-Length": len(text), **headers}.items():
            http_request.send_header(field, str(value))
        http_request.end_headers()
        http_request.wfile.write(text.encode())

    def check(self, http_request, resource, verb):
        if self.patience:
            self.patience -= 1
            raise Refused(429, "too many requests, please try again later")
        if self.token and http_request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized")
        if (resource, verb) not in self.allowed:
            raise Refused(403, f'{resource} is forbidden: User "system:serviceaccount:{NAMESPACE}:heddle-server" cannot '
                               f'{verb} resource "{resource}" in the namespace "{NAMESPACE}"')
        self.used.add((resource, verb))

    def find(self, resource, name):
        if name not in self.objects[resource]:
            raise Refused(404, f'{resource} "{name}" not found')
        return self.objects[resource][name]

    @staticmethod
    def chosen(each, query):
        wanted = [term.split("=", 1) for term in query.get("labelSelector", "").split(",") if term]
        return all(each["metadata"].get("labels", {}).get(key) == value for key, value in wanted)

    def list(self, resource, query):
        begin, version = 0, self.version
        if token := query.get("continue"):
            version, begin = map(int, token.split("."))
            if version < self.oldest:
                raise Refused(410, "The provided continue parameter is too old")
        all_of_them = [each for _, each in sorted(self.objects[resource].items()) if self.chosen(each, query)]
        end = begin + min(int(query.get("limit") or self.page), self.page)
        metadata = {"resourceVersion": str(version)}
        if end < len(all_of_them):
            metadata |= {"continue": f"{version}.{end}", "remainingItemCount": len(all_of_them) - end}
        kind, group = {"jobs": ("JobList", "batch/v1"), "pods": ("PodList", "v1")}[resource]
        # As a server does, without kind and version of each.
        items = [{k: v for k, v in each.items() if k not in ("kind", "apiVersion")} for each in all_of_them[begin:end]]
        return {"kind": kind, "apiVersion": group, "metadata": metadata, "items": items}

    def create(self, resource, each):
        self.bodies.append(copy.deepcopy(each))
        name = each["metadata"]["name"]
        if each["metadata"].get("namespace", NAMESPACE) != NAMESPACE:
            raise Refused(400, "the namespace of the provided object does not match the namespace sent on the request")
        if self.unwanted:
            raise Refused(*self.unwanted.pop(0))
        if name in self.objects[resource]:
            raise Refused(409, f'{resource} "{name}" already exists', "AlreadyExists")
        self.make(resource, dict(each, status={}))
        return self.objects[resource][name]

    def delete(self, resource, name, options):
        self.bodies.append(copy.deepcopy(options))
        if self.refusals:
            raise Refused(self.refusals.pop(0), "the object has been modified; please apply your changes to the latest")
        each = self.find(resource, name)
        for field in ("uid", "resourceVersion"):
            wanted, there = options.get("preconditions", {}).get(field), each["metadata"][field]
            if wanted and wanted != there:
                raise Refused(409, f"Precondition failed: {field} in precondition: {wanted}, in object meta: {there}")
        if "deletionTimestamp" not in each["metadata"]:
            each["metadata"]["deletionTimestamp"] = now()
            if options.get("propagationPolicy") == "Foreground":
                each["metadata"].update(finalizers=["foregroundDeletion"], deletionGracePeriodSeconds=0)
                self.store(resource, "MODIFIED", each)
            else:
                self.store(resource, "DELETED", each)
        return each

    def watch(self, http_request, resource, query):
        """Runs with `change` held, which waiting gives back."""
        after, generation = int(query["resourceVersion"]), self.watches
        gone = after < self.oldest
        self.gone_as_event ^= gone
        if gone and not self.gone_as_event:
            raise Refused(410, f"too old resource version: {after} ({self.oldest})")
        http_request.send_response(200)
        http_request.send_header("Content-Type", "application/json")
        http_request.send_header("Transfer-Encoding", "chunked")
        http_request.end_headers()
        http_request.close_connection = True

        def tell(kind, each):
            line = json.dumps({"type": kind, "object": each}) + "\n"
            # Events come as bytes do: in parts.
            for part in (line[: len(line) // 2], line[len(line) // 2:]):
                http_request.wfile.write(f"{len(part):x}\r\n{part}\r\n".encode())
                http_request.wfile.flush()

        if gone:
            tell("ERROR", status(410, f"too old resource version: {after} ({self.oldest})"))
        end = time.monotonic() + int(query["timeoutSeconds"])
        while not gone and generation == self.watches and time.monotonic() < end:
            if self.silent:
                self.change.wait(0.5)
                continue
            sent = len([tell(kind, each) for version, what, kind, each in self.events
                        if version > after and what == resource and self.chosen(each, query)])
            after = self.version
            if not sent and query.get("allowWatchBookmarks") == "true":
                kind, group = {"jobs": ("Job", "batch/v1"), "pods": ("Pod", "v1")}[resource]
                tell("BOOKMARK", {"kind": kind, "apiVersion": group, "metadata": {"resourceVersion": str(after)},
                                  "spec": {}, "status": {}})
            self.change.wait(0.5)
        if gone:
            http_request.wfile.write(b"0\r\n\r\n")
        # Else the connection is lost in the midst of it.
