"""Strings that tokenizers get wrong, made from a seed: the same list on every machine.

strings() gives a dict from bytes to their kind; some are broken UTF-8, which every reader takes as
bytes.decode("utf-8", "replace") has it. Kinds and counts (before equal ones fall together) are in
KINDS.
"""
import unicodedata

SEED = 0x5A0A1


class Random:
    """A small generator of our own, so that no library version changes the list (splitmix64)."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def pick(self, items):
        return items[self.below(len(items))]

    def chance(self, percent):
        return self.below(100) < percent


# One sentence each (Universal Declaration of Human Rights, article 1, or of our own).
SENTENCES = [
    "All human beings are born free and equal in dignity and rights.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "Todos os seres humanos nascem livres e iguais em dignidade e em direitos.",
    "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",
    "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.",
    "Minden emberi lény szabadon születik és egyenlő méltósága és joga van.",
    "Toate ființele umane se nasc libere și egale în demnitate și în drepturi.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İstanbul'da ılık.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "Hver maður er borinn frjáls og jafn öðrum að virðingu og réttindum.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Всі люди народжуються вільними і рівними у своїй гідності та правах.",
    "Сви људска бића рађају се слободна и једнака у достојанству и правима.",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق، وقد وُهبوا عقلاً وضميرًا.",
    "تمام انسان\u200cها آزاد به دنیا می\u200cآیند و از نظر کرامت و حقوق برابرند.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "ມະນຸດເກີດມາມີສິດເສລີພາບ ແລະສະເໝີໜ້າກັນໃນກຽດຕິສັກ",
    "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း",
    "មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព ក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរនិងសិទ្ធិ។",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "人人生而自由，在尊嚴和權利上一律平等。",
    "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "カタカナとひらがなと漢字、ｶﾅ、々、〇、ー。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "ሰብዓዊ ፍጡር ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "Binadamu wote wamezaliwa huru, hadhi na haki zao ni sawa.",
    "Gbogbo ènìyàn ni a bí ní òmìnira; iyì àti ẹ̀tọ́ kọ̀ọ̀kan sì dọ́gba.",
    "Хүн бүр төрж мэндлэхдээ эрх чөлөөтэй, адилхан нэр төртэй байдаг.",
    "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས།",
    "Mathematics: ∀x∈ℝ, ∃y: x² + y² ≤ 1 ⇒ |x| ≤ 1; ½ ≠ ⅓, √2 ≈ 1.41421356, 𝔸𝕓𝒸 𝟙𝟚.",
]

WORDS = """the of and to a in is it You that he was for on are with as I his they be at one have
this from or had by hot but some what there we can out other were all your when up use word how
said an each she which do their time if will way about many then them would write like so these her
long make thing see him two has look more day could go come did my sound no most number who over
know water than call first people may down side been now find any new work part take get place made
live where after back little only round man year came show every good me give our under name very
through just form much great think say help low line before turn cause same mean differ move right
boy old too does tell sentence set three want air well also play small end put home read hand port
large spell add even land here must big high such follow act why ask men change went light kind off
need house picture try us again animal point mother world near build self earth father antidisestab
lishmentarianism HTTPServer getElementById snake_case_name kebab-case-name camelCase SCREAMING_CASE
naïve café résumé Straße Ærøskøbing İstanbul ıssız Dž ǆ ﬁn ﬀ ſoſ Kelvin Åström e-mail co-op o'clock
l'été d'accord rock'n'roll y'all'd've can't won't it's I'm we'll they'd you're O'Neill
’tis don’t""".split()

CODE = [
    "def f(x, *args, **kw):\n    return x if x else {'a': [1, 2.5e-3]}\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i] * b[i];\n\t}\n",
    "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 0x7fffffff); return 0; }\n",
    "const f = async ({a, b: c = 1}) => await g(`${a}-${c}`) ?? null;\n",
    "SELECT t.id, COUNT(*) FROM t JOIN u ON t.id=u.id WHERE u.x >= '2024-01-01' GROUP BY 1;\n",
    "fn main() -> Result<(), Box<dyn Error>> { "
    "let v: Vec<_> = (0..10).map(|x| x * 2).collect(); }\n",
    "{\"a\": [1, -2.5, true, null, \"\\u00e9\\n\"], \"b\": {\"c\": {}}}",
    "<div class=\"x\">\n  <p>Hello &amp; <b>bye</b></p>\n</div>\n",
    "if __name__ == '__main__':\n    main()\n\n\n\n",
    "git commit -m \"fix: don't\" && make -j8 CC='ccache gcc' 2>&1 | tee /tmp/x.log\n",
    "A\tB\tC\n1\t2\t3\n\n\n# comment ###### -----  ===== *****\n",
    "template<typename T> auto f(T&& t) noexcept(noexcept(t())) -> decltype(t()) { return t(); }\n",
    "print(f\"{x!r:>10}\", end='')\n        # deep\n            pass\n",
    "\\begin{align} \\frac{\\partial f}{\\partial x} &= \\sum_{i=1}^{n} x_i^2 \\\\ \\end{align}",
    "```python\nimport numpy as np\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "key: value\nlist:\n  - 1\n  - \"two\"\n  - {three: 3}\n",
]

EMOJI = [
    "😀", "🙂", "👩\u200d👩\u200d👧\u200d👦", "👨🏽\u200d💻", "🏳️\u200d🌈", "🇩🇪", "🇫🇷🇯🇵", "👍🏿", "❤️", "❤",
    "✌️", "1️⃣", "#️⃣", "☎️", "🧑\u200d🚀", "🐈\u200d⬛", "🫠", "🤷\u200d♀️", "©️", "™", "→", "✓", "…",
    "—", "█", "░", "🀄", "🎉🎉🎉", "👁️\u200d🗨️",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\u200d", "\ufe0f",
    "\U0001f3fb",
]

MARKS = [
    0x300, 0x301, 0x302, 0x303, 0x308, 0x30A, 0x316, 0x323, 0x327, 0x328, 0x331, 0x345, 0x483,
    0x591, 0x5B0, 0x5BC, 0x64B, 0x651, 0x670, 0x93C, 0x94D, 0x9BC, 0xE38, 0xE48, 0x1DC4, 0x20D0,
    0x20DD, 0x3099, 0x309A, 0xFE20, 0x1D165, 0x1D16E,
]

BLANKS = [
    " ", " ", " ", "  ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000",
    "\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u1680", "\u202f", "\u205f", "\u180e",
    "\u200b", "\ufeff", "\u2009",
]

DIGITS = [
    "0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹¼½¾", "ⅠⅡⅢⅣ", "①②③", "零一二三四五",
]

CONTRACTIONS = [
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'LL", "'lL",
    "'D", "'ſ", "’s", "’t", "ʼs", "'", "''", "'x", "'rex", "'ss", "' s", "'9",
]

URLS = [
    "https://example.com/a/b?q=1&r=%20#top", "http://user:pw@host:8080/~x/", "ftp://ftp.x.org",
    "mailto:jane.doe+tag@mail.example.co.uk", "www.example.de/straße", "/usr/local/lib/x.so.1",
    "C:\\Windows\\System32\\drivers\\etc", "../../a.txt", "192.168.0.1:443", "[::1]:11434",
    "urn:isbn:0451450523", "data:image/png;base64,iVBORw0KGgo=", "s3://bucket/key", "file:///",
]

SPECIALS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<bos>", "<eos>", "<pad>", "<unk>", "<s>",
    "</s>", "<start_of_turn>", "<end_of_turn>", "<unused7>", "<mask>", "[multimodal]",
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|file_sep|>", "<file_sep>", "<repo_name>", "<|repo_name|>", "<gh_stars>",
    "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "[INST]", "[/INST]",
    "[TOOL_CALLS]", "<|vision_start|>", "<start_of_image>", "<0x0A>", "<0xFF>", "[PAD151665]",
    "<｜begin▁of▁sentence｜>", "<｜User｜>", "<|channel|>", "<think>", "</think>", "<table>", "<h1>",
    "</code>", "<empty_output>", "<jupyter_code>", "[CLS]", "[MASK]", "##ing", "<|im_",
    "im_end|>", "<|", "|>", "<end_of_", "<<s>>", "<|im_end|", "▁", "▁▁", "Ġ", "Ċ",
]

BROKEN = [
    b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe2\x82", b"\xe2", b"\xf0\x9f\x98",
    b"\xf0\x9f", b"\xf0", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xf5",
    b"\xfe", b"\xff", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xc3(", b"\xe2(\xa1",
    b"\xf0\x9f(\x80",
]


def sentence(r):
    words = r.pick(SENTENCES).split(" ")
    if r.chance(70):
        start = r.below(len(words))
        words = words[start:start + r.between(1, 9)]
    return " ".join(words)


def multilingual(r):
    text = sentence(r)
    if r.chance(40):
        text += r.pick([" ", "\n", ", ", "; ", "", " (", "/"]) + sentence(r)
    return r.pick([text, text.upper(), text.lower(), text.title(), text, text, " " + text])


def words(r):
    out = ""
    for _ in range(r.between(1, 12)):
        word = r.pick(WORDS)
        word = r.pick([word, word, word, word.upper(), word.capitalize(), word + "s"])
        out += word + r.pick([" ", " ", " ", " ", "  ", ", ", ". ", "-", "_", "/", "", "\n",
                              "! ", "?"])
    return out


def code(r):
    text = r.pick(CODE)
    lines = text.splitlines(True)
    if r.chance(60):
        text = "".join(" " * (4 * r.below(5)) + line for line in lines)
    start = r.below(len(text)) if r.chance(50) else 0
    return text[start:start + r.between(5, 120)]


def emoji(r):
    return "".join(r.pick(EMOJI) if r.chance(65) else r.pick([" ", "a", "!", "\n", r.pick(WORDS)])
                   for _ in range(r.between(1, 8)))


def marks(r):
    if r.chance(30):
        return unicodedata.normalize(r.pick(["NFD", "NFKD", "NFC"]), sentence(r))
    out = ""
    for _ in range(r.between(1, 6)):
        out += r.pick(["a", "e", "E", "o", "ü", "Å", "\u1e9b", "ά", "и", "א", "ا", "क", "か", "각",
                       "ᄀ", "ᅡ", " ", "1", ".", "\n", "Ω", "K", "豈", "ﬁ", "x", "\u0958", "\u2126"])
        out += "".join(chr(r.pick(MARKS)) for _ in range(r.below(5)))
    return out


def blanks(r):
    out = ""
    for _ in range(r.between(1, 6)):
        blank = r.pick(BLANKS)
        out += blank * r.pick([1, 1, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64])
        if r.chance(60):
            out += r.pick(["x", "if", "}", "//", "1", "é", "。", "the", "'s", "-", "\x00"])
    return out[:300]


def digits(r):
    out = ""
    for _ in range(r.between(1, 5)):
        alphabet = r.pick(DIGITS) if r.chance(40) else DIGITS[0]
        out += "".join(r.pick(alphabet) for _ in range(r.between(1, 11)))
        out += r.pick(["", " ", ".", ",", "e", "x", "-", "%", "$", "th", "\n", ":", "_", "km",
                       " €"])
    return out


def contractions(r):
    return "".join(r.pick(["I", "it", "IT", "we", " you", "X", "", "9", " ", "été", "ß", "日"]) +
                   r.pick(CONTRACTIONS) for _ in range(r.between(1, 5)))


def urls(r):
    before = r.pick(["", "see ", "(", "<", "\""])
    return before + r.pick(URLS) + r.pick(["", ".", ")", "> ok", ", "])


def specials(r):
    return "".join(r.pick(SPECIALS) if r.chance(60) else
                   r.pick([" ", "\n", "user", "system\n", "Hi", "  ", "é", "G", "\t", "x<", "1"])
                   for _ in range(r.between(1, 7)))


def broken(r):
    out = b""
    for _ in range(r.between(1, 6)):
        whole = ["a", " ", "é", "日本", "\n", "🙂", "the "]
        out += r.pick(BROKEN) if r.chance(60) else r.pick(whole).encode()
    return out


ASSIGNED = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and
            unicodedata.ucd_3_2_0.category(chr(c)) != "Cn"]


def anything(r):
    out = ""
    for _ in range(r.between(1, 10)):
        c = r.pick(ASSIGNED)
        if r.chance(60):
            c = r.pick(ASSIGNED[:9000])  # most below U+3000
        out += chr(c) + r.pick(["", "", "", " ", "a"])
    return out


def control(r):
    return "".join(chr(r.below(0xA0)) if r.chance(50) else r.pick(["a", " b", "\n", "1"])
                   for _ in range(r.between(1, 12)))


def long(r):
    makers = [multilingual, words, words, code, blanks, digits, marks, emoji]
    out = ""
    while len(out) < 1200:
        out += r.pick(makers)(r)
    return out


def repeats(r):
    unit = r.pick(["a", "A", "ab", "us", "!", "=", "-", "0", "'", "é", "中", "🙂", "\u0301", "#",
                   "/", "\\", "ha", "no", "->", "<", "().", "한", "ก"])
    return unit * r.between(2, 90)


KINDS = [(multilingual, 1500), (words, 1300), (code, 1100), (emoji, 900), (marks, 1100),
         (blanks, 1000), (digits, 800), (contractions, 500), (urls, 200), (specials, 900),
         (broken, 600), (anything, 900), (control, 200), (long, 60), (repeats, 340)]


def strings():
    r = Random(SEED)
    out = {}
    for maker, count in KINDS:
        for _ in range(count):
            text = maker(r)
            out[text if isinstance(text, bytes) else text.encode("utf-8")] = maker.__name__
    return out
