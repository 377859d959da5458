"""URIs and local paths: one rule that tells them apart, and the file system of each.

A *URI* begins with a scheme: two or more letters, digits, ``+``, ``-`` or ``.``, the first of them a letter,
and a colon (RFC 3986), before any slash. So ``dbfs:/out`` and ``s3://bucket/out`` are URIs. ``C:/out`` (a
drive), ``/data/a:b`` and ``./x:y`` are local paths.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import fs

from pyflinkstate.errors import ConfigurationError

#: The types with which users may name a folder or file.
AnyPath: TypeAlias = "str | os.PathLike[str]"
#: The schemes that ``pyarrow.fs`` knows. Other storage can be mounted, and then has a local path.
KNOWN_SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL_URI = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.DOTALL | re.IGNORECASE)
#: The scheme and the authority of a URI.
_ORIGIN = re.compile(r"[^:]+:(?://[^/]*)?")
#: Spark takes a path with one of these for a pattern that many names can fit.
_OF_PATTERNS = re.compile(r"[{}[\]*?\\]")


def scheme_of(uri: str) -> str | None:
    """Return the scheme of a URI in lower case, or None for a local path."""
    found = _SCHEME.match(uri)
    return None if found is None else found[1].lower()


def is_uri(uri: str) -> bool:
    """Return whether this is a URI and not a local path."""
    return scheme_of(uri) is not None


def check_scheme(uri: str) -> str | None:
    """Return the scheme of a URI, or None for a local path.

    Raises:
        ConfigurationError: no file system has that scheme.
    """
    scheme = scheme_of(uri)
    if scheme is None or scheme in KNOWN_SCHEMES:
        return scheme
    raise ConfigurationError(
        f"{uri}: the scheme {scheme}: is not supported; supported are "
        f"{', '.join(f'{known}:' for known in KNOWN_SCHEMES)} and local paths. Mount the storage and use "
        f"the path where it is mounted (if this is a path whose first name has a colon, write ./{uri})",
        uri=uri,
    )


def open_file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI or local path, and the path on it.

    ``file:/x`` and ``file:///x`` are local paths whose ``%`` escapes are decoded.

    Raises:
        ConfigurationError: no file system has that scheme, or a ``file:`` URI names another host.
        OSError: the file system cannot be opened; the caller adds what it was for.
    """
    scheme = check_scheme(uri)
    if scheme is None:
        return fs.LocalFileSystem(), absolute(uri)
    if scheme == "file":
        return fs.LocalFileSystem(), _local_path(uri)
    try:
        file_system, path = fs.FileSystem.from_uri(scheme + uri[len(scheme) :])
    except pa.ArrowException as error:
        raise OSError(str(error)) from error
    return file_system, path


def _local_path(uri: str) -> str:
    found = _LOCAL_URI.fullmatch(uri.partition("?")[0])
    if found is None:
        raise ConfigurationError(
            f"{uri}: a file: URI must be an absolute path on this host, file:/x or file:///x; for another "
            f"host's files use the path where they are mounted",
            uri=uri,
        )
    return unquote(found[1])


def absolute(uri: AnyPath) -> str:
    """Return a URI, or an absolute path, because other processes have other working directories.

    Slashes at the end are removed, as by Flink's ``Path``. As in a shell, ``~`` at the beginning of a path
    stands for the home of the user.

    Raises:
        ConfigurationError: no file system has that scheme, or it is no path.
    """
    text = path_text(uri)
    if check_scheme(text) is None:
        return str(Path(os.path.expanduser(text)).absolute())
    origin = _ORIGIN.match(text)
    is_root = origin is not None and not text[origin.end() :].partition("?")[0].strip("/")
    return text if is_root else "".join(split_options(text))


def path_text(path: AnyPath) -> str:
    """Return a path or URI as a text.

    Raises:
        ConfigurationError: it is no path.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ConfigurationError(f"a path must be a string or a pathlib.Path, not {path!r}")
    return text


def child_uri(uri: str, *names: str) -> str:
    """Return a URI or path below another; options of a URI (``?endpoint_override=...``) stay at its end."""
    base, question, options = split_options(uri)
    return "/".join([base, *names]) + question + options


def parent_uri(uri: str) -> tuple[str, str]:
    """Return the URI or path of the folder that holds another, and the name of the other in it.

    >>> parent_uri("s3://bucket/jobs/chk-1?region=x")
    ('s3://bucket/jobs?region=x', 'chk-1')
    """
    base, question, options = split_options(uri)
    parent, _, name = base.rpartition("/")
    return (parent or "/") + question + options, name


def split_options(uri: str) -> tuple[str, str, str]:
    """Return a URI or path without a final slash, and a URI's ``?`` and options, which may be empty."""
    base, question, options = uri.partition("?") if is_uri(uri) else (uri, "", "")
    return base.rstrip("/"), question, options


def name_below(uri: str, name: str) -> str:
    """Return a name that a user has given as a child of a URI or path has it: below a URI it is escaped."""
    return quote(name, safe="") if is_uri(uri) else name


def path_in_spark(uri: str) -> str:
    """Return the form of a URI or path for Spark, as Hadoop does not decode ``%`` escapes.

    >>> path_in_spark("hdfs://cluster/a%20b")
    'hdfs://cluster/a b'

    Raises:
        ConfigurationError: a ``file:`` URI names another host.
    """
    scheme = scheme_of(uri)
    if scheme is None:
        return uri
    if scheme == "file":
        return f"file://{_local_path(uri)}"
    origin = _ORIGIN.match(uri)
    assert origin is not None
    return scheme + origin[0][len(scheme) :] + unquote(uri[origin.end() :])


def check_spark_reaches(uri: str, what: str, remedy: str) -> None:
    """Check that Spark can use a URI too: Hadoop supports neither options after a ``?`` nor ``s3://``.

    Raises:
        ConfigurationError: Spark cannot use it.
    """
    if scheme_of(uri) == "s3" or (is_uri(uri) and "?" in uri):
        raise ConfigurationError(f"{what} {uri}: Spark cannot reach that directory under this URI; {remedy}")


def check_spark_reads(uri: str, what: str, remedy: str) -> None:
    """Check that Spark finds a folder by its name, and does not take that for a pattern.

    Raises:
        ConfigurationError: it would read nothing, or other folders.
    """
    path = path_in_spark(uri)
    origin = _ORIGIN.match(path) if is_uri(path) else None
    found = _OF_PATTERNS.search(path, 0 if origin is None else origin.end())
    if found is not None:
        raise ConfigurationError(
            f"{what} {path}: Spark takes a path with {found[0]} for a pattern, and would not find that "
            f"folder; {remedy}",
            uri=uri,
        )
