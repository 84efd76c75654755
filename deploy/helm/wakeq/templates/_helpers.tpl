{{- define "wakeq.labels" -}}
app.kubernetes.io/part-of: wakeq
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "wakeq.image" -}}
{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end }}

{{- define "wakeq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "wakeq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "wakeq.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: {{ . }}
{{- end }}

{{- define "wakeq.secret" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end }}

{{- /* Cloud SQL's proxy: a sidecar starts first and stops last, so a worker that shuts down can still complete events. */}}
{{- define "wakeq.proxy" -}}
{{- with .Values.cloudSql }}
{{- if .connectionName }}
initContainers:
  - name: cloud-sql-proxy
    image: {{ .image }}
    imagePullPolicy: Always
    restartPolicy: Always
    args:
      - --private-ip
      - --unix-socket=/cloudsql
      - --structured-logs
      - --health-check
      - --http-address=0.0.0.0
      - --exit-zero-on-sigterm
      - {{ .connectionName | quote }}
    ports:
      - name: proxy-health
        containerPort: 9090
    startupProbe:
      httpGet:
        path: /startup
        port: proxy-health
      periodSeconds: 1
      timeoutSeconds: 2
      failureThreshold: 30
    livenessProbe:
      httpGet:
        path: /liveness
        port: proxy-health
      periodSeconds: 30
      timeoutSeconds: 10
      failureThreshold: 3
    resources:
      requests:
        cpu: 100m
        memory: 64Mi
      limits:
        cpu: "1"
        memory: 256Mi
    securityContext:
      {{- include "wakeq.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - name: cloudsql
        mountPath: /cloudsql
volumes:
  - name: cloudsql
    emptyDir:
      medium: Memory
      sizeLimit: 1Mi
{{- end }}
{{- end }}
{{- end }}

{{- define "wakeq.proxyMount" -}}
{{- if .Values.cloudSql.connectionName }}
volumeMounts:
  - name: cloudsql
    mountPath: /cloudsql
{{- end }}
{{- end }}

{{- define "wakeq.scrapers" -}}
{{- if .Values.scrapers -}}
- from:
    - namespaceSelector:
        matchExpressions:
          - key: kubernetes.io/metadata.name
            operator: In
            values: {{ .Values.scrapers | toJson }}
  ports:
    - port: metrics
{{- end }}
{{- end }}
