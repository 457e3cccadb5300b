"""Tells which code page names without any mark of their encoding were written in.

Strict decoding alone proves nothing: every Korean name is also valid GBK, and any bytes are
valid cp437. So each candidate reads the names and is scored by how likely its language would
produce them: a probability per character from its class (frequent, ordinary, rare), and one
per change between ASCII and other letters. The archive is judged as a whole, because one
packer wrote all its names.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The most frequent characters of each language, those of file and folder names included.
_HANZI = frozenset(
    "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行"
    "过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从知使东第"
    "新建文件夹图片照相册视频音乐电影资料报告合同表格产品说明书安装程序目录副本最终版本修改备份汇总名单附件"
    "章节课程考试题答案工作总结计划项目管理系统设计开发测试需求数据库网络服务器客户端用户财务发票税务银行账单"
    "收入支出工资员培训招聘简历身份证护照毕业论证书北京上海广州深圳杭州南京成都武汉西安重庆天津苏中华民共"
    "月号点分秒周星期春夏秋冬红黄蓝绿白黑色高低长短左右内外全部已完未正式草稿封面背景标志海报宣传册广告活动"
    "旅游风景山水花草树木动物猫狗鸟鱼美食餐厅酒店机场火车站汽车路线地图婚礼宝孩爸妈爷奶老师同学朋友"
    "手机电脑屏幕截图扫描打印复制下载上传密码登录注册帮助使用教程指南问题解决方案通知公告申请审批流程"
    "标准规范制度法律条款协议签字盖章确认收货订单物流快递仓库价格清单采购销售市场推广品牌店铺淘宝"
    "体育健康医院药检查结果病历体检保险房屋租赁买卖装修施工图纸结构电气给排水预算决算招投标"
    "第二三四五六七八九十百千万张页篇卷集季歌曲词谱语英数理化历史政治科技教室研究院所公司集团股份有限责任"
    "间样想意两但因实现力加动它关量入等回次位情命特业现最水被情把性应次些本体代重义她"
)
_HANGUL = frozenset(
    "이다가는을를에의은한고하지도로기사리어서자대시아인나부해정수일보제라여주전장과만그적동상안스조구소성원"
    "공비관위유신연경계내세분무마중국생산물재물방법개설화교학문회실당선민행영모결과본발미용간통토론드트"
    "진첫두번째읽어주세요파일이름새폴더사진문서그림음악동영상자료보고서계약표목록복사본최종수정백업압축"
    "한국어서울부산인천대구광주울산여행가족친구생일결혼졸업입학회사업무회의록발표프로젝트기획디자인개발테스트"
    "년월오후전요금목화수토으면르를니까했습것게데저와던들때말못없있었겠네든및등우건강병원약"
    "작품단체양식신청확인증명출력입력버전설명안내참고예시샘플초안완료진행중앱웹게임노래책강의숙제시험답"
    "점검류품호실층길동네집차바람밤낮물불꽃글쓰임터널카메라컴퓨휴대폰메일번호비밀로그"
    "크키타파피포하호후히흐레렉래롤루르렌레랑러려료류외왜울운육은음임잘잔작잡매맞먹모목몸무문미밀반받배백별"
    "직접치처체초총최추출충취층친침칭탁탄태택터테토통투특급권규균극근글금급길김난날남념노농높누늘능달담답"
)
_KANJI = frozenset(
    "日一国人年大十二本中長出三時行見月分後前生五間上東四今金九入学高円子外八六下来気小七山話女北午百書先名"
    "川千水半男西電校語土木聞食車何南万毎白天母火右読友左休父雨写真画像文資料報告契約表紙説明最終版修正保存"
    "新規作成編集削除複製圧縮会社業務議事録企画設計開発試験仕様旅行家族結婚卒業入門教科問題解答宿題授業"
    "研究論文履歴見積請求領収納品注文一覧名簿住所電話番号予定管理記録手順使方法東京大阪京都府県市区町村"
    "春夏秋冬花海空鳥犬猫音楽動物映曲歌詞漢字英数理歴史体育美術図工用件部門員者様式第章回号目次表裏全同"
    "地場所事実物店屋駅道路内的性化学力思考言葉意味味料理私達彼自分世界社会経済政治法律開始了付添送受信"
)
_ACCENTED = frozenset("éèêëàáâäåãçíìîïñóòôöúùûüßÿÄÅÉÖÜÇÑæÆ¿¡£ªº")

# How likely a change between ASCII and other letters is: a word rarely mixes Latin with CJK, but
# accented letters stand among plain ones.
_CJK_CHANGE, _WESTERN_CHANGE = math.log(0.05), 0.0
_SAMPLED_NAMES_MAX = 200

# The old standards, GB 2312 and KS X 1001, have both bytes of a pair from here on.
_EUC_MIN = 0xA1


@dataclass(frozen=True, slots=True)
class _Language:
    encoding: str
    log_likelihood: Callable[[str], float]
    log_change: float


def detect_encoding(names: Sequence[bytes]) -> str:
    """The encoding, as Python names it, of unmarked names that are not all ASCII.

    UTF-8 wins where every name is valid UTF-8, which other code pages' names hardly ever are;
    cp437, the format's original one, decodes whatever is left.
    """
    if _decodable(names, "utf-8"):
        return "utf-8"
    possible = [one for one in _LANGUAGES if _decodable(names, one.encoding)]
    sample = names[:_SAMPLED_NAMES_MAX]
    return max(possible, key=lambda one: _score(sample, one)).encoding


def _decodable(names: Sequence[bytes], encoding: str) -> bool:
    try:
        for name in names:
            name.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _score(names: Sequence[bytes], language: _Language) -> float:
    return sum(_name_score(name.decode(language.encoding), language) for name in names)


def _name_score(name: str, language: _Language) -> float:
    """Log-likelihood of one name; an ASCII character costs the same in every language."""
    score, previous = 0.0, "/"
    for character in name:
        score += _ASCII if character.isascii() else language.log_likelihood(character)
        if previous.isascii() != character.isascii() and (previous + character).isalpha():
            score += language.log_change
        previous = character
    return score


_ASCII = math.log(1 / 40)


def _share(mass: float, characters: int) -> float:
    """Log-probability of one of so many characters that share the mass evenly."""
    return math.log(mass / characters)


def _chinese(character: str) -> float:
    if character in _HANZI:
        return _share(0.72, len(_HANZI))
    lead, trail = _pair(character, "gbk")
    if trail < _EUC_MIN:
        return _share(0.003, 14_000)
    if lead in range(0xB0, 0xD8):
        return _share(0.22, 3_755)
    if lead in range(0xD8, 0xF8):
        return _share(0.02, 3_008)
    return _share(0.03, 190) if lead in {0xA1, 0xA3} else _share(0.003, 1_000)


def _korean(character: str) -> float:
    if character in _HANGUL:
        return _share(0.88, len(_HANGUL))
    lead, trail = _pair(character, "cp949")
    if min(lead, trail) < _EUC_MIN:
        return _share(0.003, 8_822)
    if lead in range(0xB0, 0xC9):
        return _share(0.08, 2_050)
    return _share(0.03, 190) if lead in {0xA1, 0xA3} else _share(0.005, 5_500)


def _japanese(character: str) -> float:
    if "ぁ" <= character <= "ゖ":
        return _share(0.35, 86)
    if "ァ" <= character <= "ー":
        return _share(0.3, 92)
    if character in _KANJI:
        return _share(0.2, len(_KANJI))
    if "｡" <= character <= "ﾟ":
        return _share(0.003, 63)
    lead, _ = _pair(character, "cp932")
    if lead in range(0x88, 0x98):
        return _share(0.1, 2_965)
    return _share(0.03, 300) if lead in {0x81, 0x82} else _share(0.005, 3_800)


def _western(character: str) -> float:
    return _share(0.3, len(_ACCENTED)) if character in _ACCENTED else _share(0.005, 128)


def _pair(character: str, encoding: str) -> tuple[int, int]:
    """Lead and trail byte; a character of one byte has no lead."""
    encoded = character.encode(encoding)
    return (encoded[0], encoded[1]) if len(encoded) > 1 else (0, encoded[0])


_LANGUAGES = (
    _Language("cp437", _western, _WESTERN_CHANGE),
    _Language("cp932", _japanese, _CJK_CHANGE),
    _Language("gbk", _chinese, _CJK_CHANGE),
    _Language("cp949", _korean, _CJK_CHANGE),
)
