{{- define "stopwise.name" -}}
{{- printf "%s-service" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "stopwise.selector" -}}
app.kubernetes.io/name: stopwise
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "stopwise.labels" -}}
{{ include "stopwise.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "stopwise.scheme" -}}
{{- if .Values.tls.existingSecret }}https{{ else }}http{{ end -}}
{{- end -}}
