"""A small server on this machine that answers as the hub does, for the real client libraries to talk to."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlparse

_PATHS = (
    ("refs", re.compile(r"/api/(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)/refs")),
    ("tree", re.compile(r"/api/(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)(?P<path>.*)")),
    ("paths", re.compile(r"/api/(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)/paths-info/(?P<revision>[^/]+)")),
    ("info", re.compile(r"/api/(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)(/revision/(?P<revision>.+))?")),
    ("file", re.compile(r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")),
    ("list", re.compile(r"/api/(?P<kind>models|datasets)")),
)
_ERRORS = {  # what the hub sends: status and X-Error-Code
    "gated": (403, "GatedRepo"),
    "private": (401, "RepoNotFound"),
    "missing": (404, "RepoNotFound"),
    "revision": (404, "RevisionNotFound"),
    "entry": (404, "EntryNotFound"),
    "limited": (429, None),
    "forbidden": (403, None),
    "broken": (500, None),
}


@dataclass
class Repository:
    """Files by path for every branch and tag; ``gated`` gives its names away and not its files."""

    branches: Mapping[str, Mapping[str, bytes]]
    tags: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    gated: bool = False
    failure: str | None = None

    def revisions(self) -> dict[str, Mapping[str, bytes]]:
        named = {**self.branches, **self.tags}
        return {**named, **{commit_of(name): files for name, files in named.items()}}


def commit_of(name: str) -> str:
    return name if re.fullmatch(r"[0-9a-f]{40}", name) else hashlib.sha1(name.encode()).hexdigest()


def files_of(folder: Path) -> dict[str, bytes]:
    """A folder as files of a revision."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Hub:
    """The server, its repositories by name (``datasets/owner/name`` for data) and what was asked of it."""

    def __init__(self, **repositories: Repository) -> None:
        self.repositories: dict[str, Repository] = dict(repositories)
        self.asked: Counter[str] = Counter()
        self.tokens: set[str] = set()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlparse(self.path)
        path = unquote(address.path)
        if token := self.headers.get("Authorization"):
            self.hub.tokens.add(token)
        found = next(((what, match) for what, pattern in _PATHS if (match := pattern.fullmatch(path))), None)
        if found is None:
            return self._send(404, b"")
        what, parts = found[0], found[1].groupdict()
        kind = "datasets/" if (parts.get("kind") or "").startswith("datasets") else ""
        self.hub.asked[f"{self.command} {what} {parts.get('file') or ''}".strip()] += 1
        if what == "list":
            owner = parse_qs(address.query).get("author", [""])[0]
            known = [name for name in self.hub.repositories if name.startswith(f"{kind}{owner}/")]
            return self._json([{"id": name.removeprefix(kind), "modelId": name} for name in known])
        repository = self.hub.repositories.get(f"{kind}{parts['repo']}")
        if repository is None:
            return self._fail("missing")
        if repository.failure:
            return self._fail(repository.failure)
        if what == "refs":
            return self._json(
                {
                    "branches": [_ref(name, "heads") for name in repository.branches],
                    "tags": [_ref(name, "tags") for name in repository.tags],
                    "converts": [],
                }
            )
        if repository.gated and what != "info":
            return self._fail("gated")
        revision = parts["revision"] or "main"
        files = repository.revisions().get(revision)
        if files is None:
            return self._fail("revision")
        if what == "info":
            siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            return self._json(
                {"id": parts["repo"], "modelId": parts["repo"], "sha": commit_of(revision), "siblings": siblings}
                | {"tags": [], "downloads": 0, "private": False, "gated": False}
            )
        if what == "tree":
            inside = parts["path"].strip("/")
            deep = parse_qs(address.query).get("recursive", ["false"])[0].lower() in {"true", "1"}
            entries = _entries(files, inside, deep)
            return self._json(entries) if entries or not inside else self._fail("entry")
        if what == "paths":
            asked = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode()).get("paths", [])
            return self._json([entry for entry in _entries(files, "", True) if entry["path"] in asked])
        if parts["file"] not in files:
            return self._fail("entry", commit_of(revision))
        content = files[parts["file"]]
        headers = {"X-Repo-Commit": commit_of(revision), "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        headers |= {"Accept-Ranges": "bytes"}
        if ranged := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            first, last = int(ranged[1]), int(ranged[2] or len(content) - 1)
            headers |= {"Content-Range": f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}"}
            return self._send(206, content[first : last + 1], headers)
        return self._send(200, content, headers)

    def _json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _fail(self, failure: str, commit: str = "") -> None:
        status, code = _ERRORS[failure]
        headers = {"X-Error-Message": failure} | ({"X-Error-Code": code} if code else {})
        self._send(
            status, json.dumps({"error": failure}).encode(), headers | ({"X-Repo-Commit": commit} if commit else {})
        )

    def _send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _ref(name: str, kind: str) -> dict[str, str]:
    return {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit_of(name)}


def _entries(files: Mapping[str, bytes], inside: str, deep: bool) -> list[dict[str, object]]:
    prefix = f"{inside}/" if inside else ""
    below = {name: content for name, content in files.items() if name.startswith(prefix) or name == inside}
    entries: list[dict[str, object]] = []
    folders = set()
    for name, content in below.items():
        rest = name.removeprefix(prefix)
        parents = ["/".join(rest.split("/")[:depth]) for depth in range(1, rest.count("/") + 1)]
        folders.update(parents if deep else parents[:1])
        if deep or "/" not in rest:
            entries.append(
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            )
    return entries + [
        {"type": "directory", "path": f"{prefix}{folder}", "size": 0, "oid": hashlib.sha1(folder.encode()).hexdigest()}
        for folder in sorted(folders)
    ]
