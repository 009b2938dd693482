"""A schema registry with Confluent's API: Confluent's, Karapace, Redpanda's, and Apicurio below ``/apis/ccompat/v7``.

By requests: SchemaRegistryClient's own packages can't be installed beside Airflow's constraints.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from airflow_mirror.common.text_files import read_text
from airflow_mirror.compat import known_settings
from airflow_mirror.config import OF_A_REGISTRY, OF_REGISTRY, ClientConfig
from airflow_mirror.errors import AnswerTooLarge, BrokerError, InputError, TryAgain

_TIMEOUT_S = 15.0
_CHANGE_S = 5.0  # of a change by a right, all of it: whoever takes that away waits for it
_EACH_S = 2.0  # of that, for each of connecting and answering: bytes go out soon behind the right's check
MOST_BYTES = 64 << 20  # of an answer: 100,000 names of subjects are some 5 MB
_CHUNK_BYTES = 1 << 16
_NONE = (40401, 40402, 40403, 40408, 40409)  # no such subject, version, id; nor a compatibility, a mode of its own
_JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_APICURIO = "/apis/ccompat/"
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A schema.

    :param subjects: it is registered under, each with its version, sorted.
    :param content: type, text and the content of what it refers to, comparable between registries.
    """

    subjects: tuple[tuple[str, int], ...]
    content: Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer, all of it. :param reason: the words of its status line."""

    status_code: int
    content: bytes
    reason: str

    def json(self) -> Any:
        """Return what it holds. :raises ValueError: no JSON."""
        return json.loads(self.content)


def is_named_here(name: str) -> bool:
    """Return whether a name is an address, or looks like a file: what else may be the id of an Airflow connection."""
    return "://" in name or "/" in name or name.endswith(".properties") or Path(name).is_file()


class Registry:
    """One registry. :param role: ``source`` or ``target``. :param settings: by the names of Confluent's Python client."""

    _granted: Callable[[], AbstractContextManager[object]] | None = None
    _going: Callable[[], object] | None = None
    _freely: Registry | None = None
    _patience: tuple[float, float] = _TIMEOUT_S, 4 * _TIMEOUT_S  # of connecting, and of answering
    _tries = 3

    def __init__(self, role: str, settings: Mapping[str, str]) -> None:
        self.role, self._settings = role, settings
        self.url = (settings.get("schema.registry.url") or settings.get("url", "")).rstrip("/")

    @classmethod
    def beside(cls, cluster: ClientConfig, name: str) -> Registry:
        """Return the registry that a job is to ask, by what its Mirror names.

        A name that leads nowhere from here is that of a connection, which whoever started the job has read: its settings
        stand among those of the registry's cluster (:meth:`handed`).

        :raises InputError: they don't; errors as :meth:`by`.
        """
        if is_named_here(name):
            return cls.of(cluster.role, name)
        what = f"{cluster.role} registry {name!r}"
        its = {
            key.removeprefix(OF_REGISTRY): value
            for key, value in cluster.properties.items()
            if key.startswith(OF_A_REGISTRY)
        }
        if "url" not in its:
            raise InputError(
                what, f"neither an address nor a file here, and the {cluster.role} cluster's settings don't name it",
                f"Name it by its address, or add {OF_REGISTRY}url to those settings.",
            )  # fmt: skip
        return cls.by(cluster.role, its, what)

    def handed(self) -> dict[str, str]:
        """Return its settings as they stand among those of a cluster, with secrets; see :meth:`beside`."""
        own = {key: value for key, value in self._settings.items() if key not in ("schema.registry.url", "url")}
        return {f"{OF_REGISTRY}{key}": value for key, value in {"url": self.url, **own}.items()}

    def by_right(
        self, granted: Callable[[], AbstractContextManager[object]], going: Callable[[], object] | None = None
    ) -> Registry:  # fmt: skip
        """Return the same registry, each change of which takes a right and holds it until it is answered, 5 s at most.

        A change is not tried again: that would be later than the right was confirmed.

        :param going: is called before each question; raises where nobody waits for the answer any more.
        """
        found = Registry(self.role, self._settings)
        found._granted, found._going, found._freely, found._tries = granted, going, self, 0
        return found

    def hurried(self) -> Registry:
        """Return the same registry for who can't wait: it is given seconds for each answer, and not asked again."""
        found = Registry(self.role, self._settings)
        found._patience, found._tries = (_EACH_S, _CHANGE_S), 0
        return found

    @property
    def freely(self) -> Registry:
        """The same without a right: for who takes back what it did itself, right or no right."""
        return self._freely or self

    @classmethod
    def of(cls, role: str, given: str) -> Registry:
        """Return the registry that a name leads to: an address, or a file of properties. Errors as :meth:`by`."""
        what = f"{role} registry {given!r}"
        if "://" in given and "@" in given:
            raise InputError(
                f"{role} registry", "an address with a password stands in the list of processes",
                "Put basic.auth.user.info into a file, and name that.",
            )  # fmt: skip
        if given.startswith(("http://", "https://")):
            return cls(role, {"url": given})
        if not Path(given).is_file():
            raise InputError(what, "neither an address nor a file of properties", "Correct it.")
        text = read_text(Path(given), what)
        if given.endswith(".json"):
            return cls.by(role, known_settings.of_json(text, what), what)
        return cls.by(role, known_settings.of_properties(text, what, known_settings.REGISTRY), what)

    @classmethod
    def by(cls, role: str, settings: Mapping[str, str], what: str) -> Registry:
        """Return the registry that settings lead to. :param what: they come from, for errors.

        :raises InputError: they have no address, or a setting that nobody knows, or a secret would go over http.
        """
        settings = known_settings.of_registry(settings, what)
        found = cls(role, settings)
        if not found.url.startswith(("http://", "https://")):
            raise InputError(what, "it has no schema.registry.url", "Add it: http or https.")
        if "@" in found.url:  # it would go over http too, and into messages that name the address
            raise InputError(what, "its address has a password", "Put it into basic.auth.user.info.")
        if found.url.startswith("http://") and settings.keys() & {"basic.auth.user.info", "bearer.auth.token"}:
            raise InputError(what, "a secret would go over http", "Use https.")
        return found

    @cached_property
    def _session(self) -> Any:
        try:
            import requests
            from requests.adapters import HTTPAdapter
            from requests.auth import HTTPBasicAuth
            from urllib3.util.retry import Retry
        except ImportError:
            raise InputError(
                "schema registries", "requests is not installed here", "pip install 'airflow-mirror[schemas]'"
            ) from None

        for name in _FILES:
            # Not before: who hands the settings to a job on another host need not have them.
            if (path := self._settings.get(name)) and not Path(path).exists():
                raise InputError(
                    f"the {self.role}'s schema registry", f"{name}: there is no {path!r} on this host",
                    "Correct the path, or put the file there.",
                )  # fmt: skip
        session = requests.Session()
        again = Retry(total=self._tries, backoff_factor=0.3, status_forcelist=(429, 502, 503, 504), raise_on_status=False)
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=again))
        session.headers["Accept"] = "application/vnd.schemaregistry.v1+json"
        if user := self._settings.get("basic.auth.user.info"):
            name, _, password = user.partition(":")
            # As bytes: of texts requests and http.client take Latin-1 alone, and Java's client sends UTF-8.
            session.auth = HTTPBasicAuth(name.encode(), password.encode())
        if token := self._settings.get("bearer.auth.token"):
            session.headers["Authorization"] = f"Bearer {token}".encode().decode("latin-1")
        session.verify = self._settings.get("ssl.ca.location", True)
        if certificate := self._settings.get("ssl.certificate.location"):
            key = self._settings.get("ssl.key.location")
            session.cert = (certificate, key) if key else certificate
        return session

    def mode(self, subject: str) -> str:
        """Return the mode that a subject or a context has of its own, or the whole registry (""). Errors as :meth:`ask`.

        Empty: it has none, or the registry has no modes.
        """
        found = self.ask("GET", f"/mode/{quote(subject, safe='')}".rstrip("/"), none=True)
        return "" if found is None else str(found["mode"])

    def schema(self, schema_id: int | str) -> Registered | None:
        """Return the schema of an id, or of a GUID; None: the registry has none.

        :raises TryAgain: it does not answer. :raises BrokerError: it refuses.
        """
        where = f"/schemas/ids/{schema_id}" if isinstance(schema_id, int) else f"/schemas/guids/{quote(schema_id)}"
        found = self._get(where)
        if found is None:
            return None
        # A GUID is of a content, which has an id of its own in each context.
        ids = [{"id": schema_id, "context": "."}] if isinstance(schema_id, int) else self._get(f"{where}/ids") or []
        versions = (version for one in ids for version in self._versions(**one))
        subjects = sorted((str(one["subject"]), int(one["version"])) for one in versions)
        return Registered(subjects=tuple(subjects), content=self._content(found, set()))

    def _versions(self, id: int, context: str, **_: object) -> Any:
        # Records of a version that is deleted softly are there all the same.
        inside = "" if context == "." else f"&subject={quote(f':{context}:')}"
        return self._get(f"/schemas/ids/{id}/versions?deleted=true{inside}") or []

    def _content(self, schema: Mapping[str, Any], above: set[tuple[str, int]]) -> Any:
        kind = schema.get("schemaType", "AVRO")
        text = plain(kind, schema["schema"])
        parts = []
        for one in schema.get("references") or ():
            place = str(one["subject"]), int(one["version"])
            if place in above:
                continue
            # Deserializers follow references to what is deleted softly as well.
            its = self._get(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}?deleted=true")
            parts.append((one["name"], None if its is None else self._content(its, {*above, place})))
        return kind, text, sorted(parts, key=lambda part: str(part[0]))

    @property
    def native(self) -> str:
        """Address of Apicurio's own API; "": it is no Apicurio."""
        return f"{self.url.partition(_APICURIO)[0]}/apis/registry/v3" if _APICURIO in self.url else ""

    def ask(self, method: str, path: str, body: object = None, *, none: bool = False) -> Any:
        """Send a request of Confluent's API and return its answer; None: there is no such thing.

        :param path: below the registry's address. :param body: as JSON has it. :param none: any 404 says so.
        :raises TryAgain: it does not answer. :raises BrokerError: it refuses. :raises AnswerTooLarge: see :meth:`send`.
        """
        data = None if body is None else json.dumps(body)
        answer = self.send(method, f"{self.url}{path}", data, _JSON if data else {})
        if answer.status_code == 404 and (none or _code(answer) in _NONE):
            return None
        self.require(answer, path if method == "GET" else f"{method} {path}")
        try:
            return answer.json() if answer.content else None
        except ValueError:  # a proxy's page to log in
            asked = f"ask the {self.role}'s schema registry for {path}"
            raise BrokerError(asked, answer.status_code, "no JSON") from None

    def send(
        self, method: str, url: str, data: str | bytes | None = None, headers: Mapping[str, str] | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> Answer:  # fmt: skip
        """Send a request with the registry's login and return the answer.

        :param most_bytes: of the answer, as it is when it is unpacked.
        :raises TryAgain: there is none. :raises AnswerTooLarge: no more than that is read of it.
        :raises InputError: a file that its settings name is not here.
        """
        import requests

        if self._going is not None:
            self._going()
        free = self.freely
        content, session, timeout, until = bytearray(), free._session, free._patience, math.inf
        right: AbstractContextManager[object] = nullcontext()
        if self._granted is not None and method != "GET":
            session, timeout = self._session, (_EACH_S, _EACH_S)
            right, until = self._granted(), time.monotonic() + _CHANGE_S
        try:
            with (
                right,
                # Of the session's own authority requests is told once more: REQUESTS_CA_BUNDLE would come before it.
                session.request(
                    method,
                    url,
                    data=data,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    stream=True,
                    verify=session.verify,
                ) as answer,
            ):
                # A chunk is waited for as a whole: of what is bound in time each byte is looked at.
                for chunk in answer.iter_content(_CHUNK_BYTES if until == math.inf else 1):
                    content += chunk
                    if time.monotonic() > until:
                        raise TryAgain(
                            f"the {self.role}'s schema registry does not answer", f"not within {_CHANGE_S:.0f} s"
                        )
                    if len(content) > most_bytes:
                        raise AnswerTooLarge(self.role, urlsplit(url).path, most_bytes)
            return Answer(status_code=answer.status_code, content=bytes(content), reason=str(answer.reason))
        except OSError as e:
            # As all of requests' own are; of another one, of a bundle that is not there, say, the words tell more.
            why = type(e).__name__ if isinstance(e, requests.RequestException) else str(e)
            raise TryAgain(f"the {self.role}'s schema registry does not answer", why) from None

    def require(self, answer: Answer, what: str) -> None:
        """Return if an answer is a yes. :param what: was asked for. :raises BrokerError: it refuses, in its own words."""
        if answer.status_code not in (200, 204):
            raise BrokerError(f"ask the {self.role}'s schema registry for {what}", answer.status_code, _words(answer))

    def _get(self, path: str) -> Any:
        return self.ask("GET", path)


def plain(kind: str, text: str) -> str:
    """Return a schema's text so that it can be compared: spaces and the order of keys are the registry's."""
    try:
        return json.dumps(json.loads(text), sort_keys=True) if kind in ("AVRO", "JSON") else text
    except ValueError:  # a type's bare name, as old registries took it
        return text


def _words(answer: Answer) -> str:
    try:
        return str(answer.json().get("message") or answer.json()["title"])
    except (ValueError, AttributeError, KeyError):
        return answer.reason


def _code(answer: Answer) -> int:
    """Return a registry's own error code; Apicurio and old ones say the status alone."""
    try:
        return int(answer.json().get("error_code", 40403))
    except (ValueError, AttributeError):
        return 0
