"""Names: which encoding they are read in, and which paths are let through."""

import unicodedata

import pytest

from node_agent.capabilities.archive_clean import CleanOptions, CleanOptionsError, RefusalReason
from node_agent.capabilities.archive_clean.encodings import detect_encoding
from node_agent.capabilities.archive_clean.paths import PathTree, name_warnings, safe_path
from node_agent.capabilities.archive_clean.refusals import ArchiveRefusedError
from tests.cases.builders.zip_builder import Entry, archive, text_entry, unicode_path
from tests.unit.node_agent.archive_clean.cleaning import Workshop

_TOLD_APART = {
    "gbk": [
        ["新建文件夹/图片.jpg"],
        ["产品图.png"],
        ["合同.pdf"],
        ["张三.docx", "李四.docx"],
        ["IMG_0001 副本.jpg", "readme.txt"],
        ["2023年度工作总结（最终版）.docx"],
        ["会议纪要/第3次会议.doc", "会议纪要/附件1.xls"],
        ["北京.jpg"],
        ["论文初稿_final.doc"],
        ["身份证正面.jpg", "身份证反面.jpg"],
    ],
    "cp932": [
        ["テスト.txt"],
        ["新しいフォルダー/画像.jpg"],
        ["写真１.jpg", "写真２.jpg"],
        ["議事録_2023年.docx"],
        ["見積書（株式会社）.xlsx"],
        ["ソース/表示.txt"],
        ["スクリーンショット 2023-01-01.png"],
        ["お知らせ.pdf"],
        ["履歴書.doc"],
    ],
    "cp949": [
        ["새 폴더/사진.jpg"],
        ["이력서.hwp"],
        ["회의록_2023년.docx"],
        ["견적서.xlsx"],
        ["사업자등록증.pdf"],
        ["스크린샷 2023.png"],
        ["김철수.doc", "이영희.doc"],
        ["보고서(최종).hwp"],
        ["제안서.ppt"],
    ],
    "cp437": [
        ["café.txt"],
        ["Größe.txt"],
        ["Übersicht.xls", "Straße.doc"],
        ["créée.txt"],
        ["niño.jpg"],
        ["Señor Muñoz/año.txt"],
        ["ÄÖÜ.txt"],
        ["smörgåsbord.txt"],
        ["résumé.pdf", "façade.png", "naïveté.txt"],
    ],
}


@pytest.mark.parametrize(
    ("encoding", "names"),
    [(encoding, names) for encoding, lists in _TOLD_APART.items() for names in lists],
)
def test_code_pages_are_told_apart(encoding: str, names: list[str]) -> None:
    """A few everyday names are enough to recognise the code page."""
    assert detect_encoding([name.encode(encoding) for name in names]) == encoding


def test_a_stale_unicode_field_is_ignored(workshop: Workshop) -> None:
    """A field whose checksum belongs to another name does not rename the file."""
    stale = unicode_path(b"before.txt", "before.txt")
    data = archive([text_entry("after.txt", "x", local_extra=stale, central_extra=stale)])
    assert workshop.clean(data).kept == ["after.txt"]


def test_a_broken_unicode_field_is_refused(workshop: Workshop) -> None:
    """A field that was made for this name and is not UTF-8 leaves the name unknown."""
    broken = bytearray(unicode_path(b"a?.txt", "aé.txt"))
    broken[-5] = 0xFF
    entry = Entry(b"a?.txt", b"x", central_extra=bytes(broken))
    assert workshop.refusal(archive([entry])).refusal is RefusalReason.UNDECODABLE_NAME


def test_a_unicode_field_in_one_header_only_may_not_rename(workshop: Workshop) -> None:
    """A streaming reader would see another file than one that reads the directory."""
    entry = text_entry("a.txt", "x", local_extra=unicode_path(b"a.txt", "b.exe"))
    assert workshop.refusal(archive([entry])).refusal is RefusalReason.MALFORMED


def test_the_encoding_can_be_given(workshop: Workshop) -> None:
    """A caller who knows better than the detection is believed, and the manifest says so."""
    data = archive([Entry("фото.txt".encode("cp866"), b"x")])
    cleaned = workshop.clean(data, CleanOptions(name_encoding="cp866"))
    assert (cleaned.kept, cleaned.report.name_encoding) == (["фото.txt"], "cp866")


def test_an_unknown_encoding_is_an_error_of_the_options() -> None:
    """The message names the ones there are."""
    with pytest.raises(CleanOptionsError, match="cp437"):
        CleanOptions(name_encoding="klingon")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "/",
        "/a",
        "\\a",
        "\\\\host\\share\\a",
        "C:",
        "c:\\a",
        "z:a",
        "a\x00",
        "a\tb",
        "a\x1b[2J",
        "a\x7f",
        "a\x85",
        "a\u009bb",
        "Icon\r\r",
        "Icon\r/a",
        "Icons\r",
        "Icon\n",
        "n" * 1025,
        "é" * 513,
    ],
)
def test_unsafe_names_are_refused(name: str) -> None:
    """Each way out of the folder, and each way to disturb a terminal, log or C string."""
    with pytest.raises(ArchiveRefusedError) as caught:
        safe_path(name)
    assert caught.value.refusal is RefusalReason.UNSAFE_PATH
    assert all(character.isprintable() for character in caught.value.message)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", "a"),
        ("./a", "a"),
        ("a//b/./c", "a/b/c"),
        ("a\\b\\", "a/b/"),
        ("./", ""),
        (".", ""),
        ("a/.", "a/"),
        ("Icon\r", "Icon\r"),
        ("a/Icon\r", "a/Icon\r"),
        ("__MACOSX/._Icon\r", "__MACOSX/._Icon\r"),
        ("...", "..."),
        ("ab:c", "ab:c"),
        ("n" * 1024, "n" * 1024),
    ],
)
def test_safe_names_are_brought_into_one_form(name: str, path: str) -> None:
    """Separators and empty segments are unified, nothing else is touched."""
    assert safe_path(name) == path


def test_unified_names_can_turn_out_to_be_the_same(workshop: Workshop) -> None:
    """Two spellings of one path would overwrite each other."""
    data = archive([text_entry("a/b.txt", "1"), text_entry("./a//b.txt", "2")])
    assert workshop.refusal(data).refusal is RefusalReason.DUPLICATE_NAME


@pytest.mark.parametrize("first", ["a", "a/"])
def test_a_folder_listed_twice_or_as_a_file_is_a_duplicate(first: str, workshop: Workshop) -> None:
    """The name alone decides, not what the entry is."""
    data = archive([text_entry(first), text_entry("a/")])
    assert workshop.refusal(data).refusal is RefusalReason.DUPLICATE_NAME


def test_the_root_folder_is_left_out(workshop: Workshop) -> None:
    """Some packers list the folder they were started in."""
    cleaned = workshop.clean(archive([text_entry("./"), text_entry("./a.txt", "a")]))
    assert (cleaned.kept, cleaned.removed) == (["a.txt"], {"./": "ROOT_DIRECTORY"})


@pytest.mark.parametrize(
    ("path", "warnings"),
    [
        ("con", ["WINDOWS_DEVICE_NAME"]),
        ("a/NUL.txt", ["WINDOWS_DEVICE_NAME"]),
        ("lpt9 .log/a", ["WINDOWS_DEVICE_NAME"]),
        ("COM¹", ["WINDOWS_DEVICE_NAME"]),
        ("console", []),
        ("icon.png", []),
        ("com10", []),
        ("gpj\u202eexe.", ["BIDIRECTIONAL_OVERRIDE"]),
        ("aux/\u2066a", ["WINDOWS_DEVICE_NAME", "BIDIRECTIONAL_OVERRIDE"]),
    ],
)
def test_odd_names_are_warned_about(path: str, warnings: list[str]) -> None:
    """They are the user's, and the user is told."""
    assert [warning.value for warning in name_warnings(path)] == warnings


def test_warnings_reach_the_manifest(workshop: Workshop) -> None:
    """The entry is kept, with its warning beside it."""
    cleaned = workshop.clean(archive([text_entry("NUL.txt", "x")]))
    assert [one.value for one in cleaned.report.kept[0].warnings] == ["WINDOWS_DEVICE_NAME"]


def test_normal_forms_are_left_alone(workshop: Workshop) -> None:
    """Composed and decomposed spellings stay what they are, beside each other."""
    names = [unicodedata.normalize(form, "é.txt") for form in ("NFC", "NFD")]
    assert workshop.clean(archive([text_entry(name, "x") for name in names])).kept == names


def test_a_path_tree_is_not_misled_by_neighbours() -> None:
    """Characters that sort before the slash do not hide what lies below a folder."""
    tree = PathTree(["a!", "a-b", "a/", "a/c", "a0", "b/"])
    assert tree.has_below("a/")
    assert not tree.has_below("b/")
    assert not tree.has_below("a-b/")
